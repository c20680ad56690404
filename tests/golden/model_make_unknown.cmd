$CULPRIT model make gema3 --out in
