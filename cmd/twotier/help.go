package main

import (
	"fmt"
	"runtime"

	"twotier.dev/twotier/internal/version"
)

const rootText = `Memory answers, Redis remembers. twotier serve is the server, and the other
commands talk to one. They find it with --server or TWOTIER_SERVER, and present
a token with --token-file or TWOTIER_TOKEN. twotier help COMMAND says more.

Exit status: 0 all went well, 1 it did not, 2 wrong usage, 3 acquire or distinct
was refused.`

const rootExamples = `twotier demo
twotier serve &
twotier add alice -n 3
twotier acquire alice --limit 15/1m --limit 50/24h
twotier count alice --window 1m,37m,24h`

const serveText = `Serves the HTTP API until SIGTERM or SIGINT, then flushes what Redis does not
have yet and exits with status 0. When it is ready it prints one line of JSON to
stdout, with the address of each listener. Logs go to stderr. Without --redis
nothing outlives the process.

Every flag can also be set in the environment (--flush-interval is
TWOTIER_FLUSH_INTERVAL) or in a YAML file (flush-interval: 200ms). A flag wins
over the environment, and that over the file. Only the file can have namespaces,
with buckets of their own; what a namespace doesn't set is as in the default one:

    redis: redis://127.0.0.1:6379
    namespaces:
      default:
        ladder: [1s x 100, 1m x 150, 15m x 96] # width of a bucket x how many
        exact: 64 # the newest events of a key keep their millisecond
      login:
        on-cold: deny
        max-keys: 1000000 # most keys in memory; more are refused with 429
      sms:
        hash-tags: true # {188} and {188}:hello have one owner and one partition
    rules: # limits that requests can name; or a file of them, as --rules
      - {name: login, namespace: login, limits: [15/1m, 50/24h]}
      - {name: login-new, namespace: login, limits: [5/1m], state: shadow}

Three nodes of a cluster on one machine; any of them answers for all:

    export TWOTIER_REDIS=redis://127.0.0.1:6379
    export TWOTIER_JOIN=127.0.0.1:7946,127.0.0.1:7947,127.0.0.1:7948
    twotier serve --node a --listen 127.0.0.1:8080 --gossip 127.0.0.1:7946 &
    twotier serve --node b --listen 127.0.0.1:8081 --gossip 127.0.0.1:7947 &
    twotier serve --node c --listen 127.0.0.1:8082 --gossip 127.0.0.1:7948 &`

const serveExamples = `twotier serve
twotier serve --redis redis://127.0.0.1:6379 --ack redis
twotier serve --listen :8080 --tokens tokens.conf
TWOTIER_REDIS=rediss://me:pass@redis:6380 twotier serve --config twotier.yaml
twotier serve --config twotier.yaml --print-config`

// versionLine returns the output of the command version.
func versionLine() string {
	return fmt.Sprintf("twotier %s %s %s/%s", version.String(), runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}
