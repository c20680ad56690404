# Version 3, one tensor, one key; the file ends there.
mkdir in; printf 'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' >in/model.gguf
$CULPRIT model info in/model.gguf
