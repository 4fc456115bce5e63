#!/usr/bin/env bash
# Clients that leave by the thousand, vanish or only hold connections; too little KV memory; a killed server.
. "$(dirname "$0")/serve_run.bash"
