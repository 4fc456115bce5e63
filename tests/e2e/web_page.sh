#!/usr/bin/env bash
# The chat page of the server in a headless Chromium (tools/bootstrap --web installs one). Without a browser only the
# files are checked.
. "$(dirname "$0")/serve_run.bash"
