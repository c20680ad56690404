mkdir in; printf '{"schema": "culprit-trace"' >in/trace.json
$CULPRIT compare in in
