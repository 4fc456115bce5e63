#!/usr/bin/env bash
# Requests that are wrong in every way get an error in JSON that says how.
. "$(dirname "$0")/serve_run.bash"
