package config

import (
	"fmt"
	"math"
	"time"
)

// Server holds the settings of the listeners and of requests. An address is empty without a
// listener, and Node if the server chooses its name.
type Server struct {
	Listen, Resp, GRPC                              string
	GRPCMaxConnectionAge, GRPCMaxConnectionAgeGrace time.Duration
	Node                                            string
	RequestTimeout, DrainDelay, DrainTimeout        time.Duration
	MaxConnections, MaxConnectionsPerAddress        int
	Rules                                           string // a path
	Shadow                                          bool   // see also Namespace.Shadow
}

func serverSettings(s *Server) []setting {
	return []setting{
		{name: "listen", def: "127.0.0.1:8080", arg: "HOST:PORT",
			help: "address of the HTTP API; port 0 picks a free one",
			set:  setChecked(&s.Listen, checkAddress)},
		{name: "resp", arg: "HOST:PORT",
			help: "serve Redis clients at this address, which shares the memory and the " +
				"connections of --listen; port 0 picks a free one",
			set: setChecked(&s.Resp, checkOptionalAddress)},
		{name: "grpc", arg: "HOST:PORT",
			help: "serve Envoy's rate limit service at this address, with the domains in " +
				"--rules; shares the memory and the connections of --listen; port 0 picks a " +
				"free one",
			set: setChecked(&s.GRPC, checkOptionalAddress)},
		{name: "grpc-max-connection-age", def: "24h", arg: "DURATION", advanced: true,
			help: "ask a gRPC client to connect again after about this time, so that a load " +
				"balancer of connections can move it to another node; 0: never",
			set: setParsed(&s.GRPCMaxConnectionAge, ParseDuration)},
		{name: "grpc-max-connection-age-grace", def: "1h", arg: "DURATION", advanced: true,
			help: "how long the old connection then goes on with the requests under way; 0: " +
				"until the last one has ended",
			set: setParsed(&s.GRPCMaxConnectionAgeGrace, ParseDuration)},
		{name: "node", arg: "ID",
			help: "name of this server, unique in the cluster; keep it across restarts (made " +
				"up if empty)",
			set: setChecked(&s.Node, checkName)},
		{name: "request-timeout", def: "2s", arg: "DURATION", help: "time limit for one request",
			set: setParsed(&s.RequestTimeout, parsePositive)},
		{name: "drain-delay", def: "0s", arg: "DURATION",
			help: "how long to go on serving after SIGTERM, only no longer ready, so that load " +
				"balancers notice before anything is refused",
			set: setParsed(&s.DrainDelay, ParseDuration)},
		{name: "drain-timeout", def: "30s", arg: "DURATION",
			help: "time limit for flushing pending counts after SIGTERM, at least 1ms; the " +
				"flush ends earlier if Redis takes nothing for 10s",
			set: setParsed(&s.DrainTimeout, parsePositive)},
		{name: "max-connections", def: "0", arg: "N", advanced: true,
			help: "limit on connections to --listen, and on those to --resp and to --grpc; 0: as " +
				"many as memory and RLIMIT_NOFILE allow",
			set: setParsed(&s.MaxConnections,
				parseIntegerWithin(0, math.MaxInt, "a number, 0 or more"))},
		{name: "max-connections-per-address", def: "0", arg: "N", advanced: true,
			help: "limit on connections from one IPv4 address or IPv6 /64, which may use the " +
				"same share of the memory for requests; raise it behind a proxy; 0: half of all",
			set: setParsed(&s.MaxConnectionsPerAddress,
				parseIntegerWithin(0, math.MaxInt, "a number, 0 or more"))},
		{name: rulesKey, arg: "FILE",
			help: "limits that have names, in YAML, or what envoyproxy/ratelimit reads; the " +
				"configuration file may have a list of rules in place of the FILE",
			set: setText(&s.Rules)},
		{name: shadowOption, def: "false",
			help: "judge and report all requests, but refuse none; a namespace of the " +
				"configuration file may have shadow: true instead",
			set: setParsed(&s.Shadow, parseBool)},
	}
}

// checkConnections refuses a bound for one address that exceeds the bound for all.
func (s *Server) checkConnections() error {
	if most := s.MaxConnections; most > 0 && s.MaxConnectionsPerAddress > most {
		return fmt.Errorf("--max-connections-per-address: %d are more than --max-connections "+
			"allows, %d", s.MaxConnectionsPerAddress, most)
	}
	return nil
}
