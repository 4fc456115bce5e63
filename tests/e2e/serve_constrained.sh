#!/usr/bin/env bash
# Formats, grammars and tool calls through the server, with drafts, many at once.
. "$(dirname "$0")/serve_run.bash"
