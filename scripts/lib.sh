# Shared by the scripts here: sourced, not run. Sets `root` and goes there.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Engines, models and the compiler's cache stay inside the checkout unless the caller says otherwise.
export CULPRIT_HOME=${CULPRIT_HOME:-$root/.culprit}
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1

# What the demo and the engine tests use.
demo_engines=(mlx@0.29.4 mlx@0.31.2 mlx@0.32.4)
demo_model=smollm2

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
