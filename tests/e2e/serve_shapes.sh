#!/usr/bin/env bash
# The forms of replies and streams, usage, logprobs, several answers, metrics that add up.
. "$(dirname "$0")/serve_run.bash"
