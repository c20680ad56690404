$CULPRIT explain gguf-invald
