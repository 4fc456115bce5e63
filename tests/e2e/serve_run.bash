# Sourced by the serve_*.sh scripts: runs the Python script of the same name with the program and the small models.
. "$(dirname "${BASH_SOURCE[1]}")/lib.bash"
if [ -z "$target" ] || [ -z "$draft" ]; then
  skip 'the small model or its draft is not on this machine'
  finish
  exit
fi
script=${BASH_SOURCE[1]%.sh}.py
DFLASH=$dflash TARGET=$target DRAFT=$draft PYTHONDONTWRITEBYTECODE=1 python3 "$script"
exit
