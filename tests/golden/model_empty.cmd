mkdir in; : >in/model.gguf
$CULPRIT find in/model.gguf --engine ref
