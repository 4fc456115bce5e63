#!/usr/bin/env bash
# Clients that leave, do not read, send slowly or send garbage cost nobody else anything.
. "$(dirname "$0")/serve_run.bash"
