# A random model of each architecture, read again; a run of it has every op inside its bound.
for arch in llama mistral qwen2 qwen3 gemma3 gemma4; do
  $CULPRIT model make $arch --out $arch
  $CULPRIT model info $arch --tensors >info.txt; awk '/^kind|^ops|architecture|norm_unit_offset|tied_head|window|full_every/ {print $1, $2}' info.txt
  awk '/layers\.1\..*(q_proj|q_norm|post_attention)/ {print}' info.txt
  $CULPRIT run $arch --engine ref --prompt 5,6,7,8,9,10 --chunks 3,2,1 --out run-$arch --quiet >run.txt
  $CULPRIT audit run-$arch --quiet >audit.txt; echo "audit: $?"
done
