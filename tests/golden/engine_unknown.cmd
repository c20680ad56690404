$CULPRIT find smollm2 --engine mxl@0.32.4
