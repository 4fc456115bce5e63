#!/usr/bin/env bash
# The deployment examples: read by the programs they are for, where those are installed, and answers streamed through them.
. "$(dirname "$0")/serve_run.bash"
