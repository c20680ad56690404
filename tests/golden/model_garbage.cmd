mkdir in; printf 'GGUF this is no model' >in/model.gguf
$CULPRIT find in/model.gguf --engine ref
