#!/usr/bin/env bash
# Starting, loading, signals.
. "$(dirname "$0")/serve_run.bash"
