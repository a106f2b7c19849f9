package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"
	"unicode"
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

// Cluster holds the settings that make a server a node of a cluster, which it is if Gossip is set.
type Cluster struct {
	Gossip, GossipAdvertise, Advertise, Peer string
	Join                                     []string
	ClusterSecret, ClusterSecretFile         string // at most one of them
	HotRate                                  int
}

// hasClusterSecret reports whether nodes share a secret.
func (c *Cluster) hasClusterSecret() bool {
	return c.ClusterSecret != "" || c.ClusterSecretFile != ""
}

func clusterSettings(c *Cluster) []setting {
	return []setting{
		{name: "gossip", arg: "HOST:PORT", help: "join a cluster, and gossip at this " +
			"address (UDP and TCP); port 0 picks a free one",
			set: setChecked(&c.Gossip, checkOptionalAddress)},
		{name: "gossip-advertise", arg: "HOST:PORT",
			help: "where the other nodes reach --gossip, if at another address",
			set:  setChecked(&c.GossipAdvertise, checkOptionalAddress)},
		{name: "advertise", arg: "HOST:PORT",
			help: "where the other nodes reach the HTTP API, if at another address than --listen",
			set:  setChecked(&c.Advertise, checkOptionalAddress)},
		{name: "peer", arg: "HOST:PORT",
			help: "address for messages from other nodes, in place of --listen",
			set:  setChecked(&c.Peer, checkOptionalAddress)},
		{name: "join", arg: "HOST:PORT,...",
			help: "gossip addresses of all nodes; this node may be among them",
			set:  setList(&c.Join, func(a string) (string, error) { return a, checkAddress(a) })},
		{name: "cluster-secret", arg: "TEXT",
			help: "encrypts and authenticates all messages between nodes; required unless gossip " +
				"and HTTP API can only be reached from this machine",
			set: setChecked(&c.ClusterSecret, checkSecret)},
		{name: "cluster-secret-file", arg: "FILE",
			help: "file of such secrets, one per line: the first is used, all are accepted; " +
				"reloaded when it changes",
			set: setText(&c.ClusterSecretFile)},
		{name: "hot-rate", def: "2000", arg: "N", advanced: true,
			help: "operations a second on one key of another node before this one borrows " +
				"some of what is left of the key's limits, to decide without asking; 0: never",
			set: setParsed(&c.HotRate, parseIntegerWithin(0, math.MaxInt,
				"a number of operations a second, 0 or more"))},
	}
}

const leastSecret = 16

// checkSecret refuses a secret that is probably a mistake: one that is too short or has control
// characters. It accepts an empty secret.
func checkSecret(text string) error {
	if text != "" && len(text) < leastSecret {
		return fmt.Errorf("too short; at least %d characters", leastSecret)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("contains a control character")
	}
	return nil
}

// ParseSecrets reads a file of cluster secrets, one per line. Nodes send with the first and accept
// all. Empty lines and lines that begin with # are skipped. The error has the line number but none
// of the line's text.
func ParseSecrets(text []byte) (secrets [][]byte, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := checkSecret(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		secrets = append(secrets, []byte(line))
	}
	if len(secrets) == 0 {
		return nil, errors.New("it holds no secret")
	}
	return secrets, nil
}

// Access holds the settings of access control and encryption. Paths and addresses are empty unless
// they are set.
type Access struct {
	Tokens                       string
	Insecure                     bool
	Hosts                        []string
	TrustedProxies               []netip.Prefix
	Admin                        string
	TLSCert, TLSKey, TLSClientCA string // the first two are both set, or both empty
	AdminToken                   string
}

func accessSettings(a *Access) []setting {
	return []setting{
		{name: "tokens", arg: "FILE",
			help: "who may do what: a line for each token with its name, hash, roles and " +
				"namespaces (twotier token NAME makes one); read again when it changes",
			set: setText(&a.Tokens)},
		{name: "insecure", def: "false",
			help: "listen beyond this machine without --tokens: whoever can connect may count, " +
				"read and reset",
			set: setParsed(&a.Insecure, parseBool)},
		{name: "hosts", arg: "NAME,...",
			help: "names under which this server is reached; without --tokens, requests for any " +
				"other name are refused on loopback, and wherever this is set (web pages " +
				"might send them)",
			set: setList(&a.Hosts, parseHost)},
		{name: "trusted-proxies", arg: "CIDR,...",
			help: "networks of the proxies whose X-Forwarded-For is believed, for the client's " +
				"address in /v1/forward-auth",
			set: setList(&a.TrustedProxies, parseNetwork)},
		{name: "admin", arg: "HOST:PORT", help: "where to serve /v1/admin, changes of " +
			"the rules and backtests, in place of --listen, and metrics and profiles besides " +
			"(/debug/pprof/)",
			set: setChecked(&a.Admin, checkOptionalAddress)},
		{name: "tls-cert", arg: "FILE",
			help: "PEM file of this server's certificate, for everything it listens on except " +
				"gossip; read again when it changes",
			set: setText(&a.TLSCert)},
		{name: "tls-key", arg: "FILE", help: "PEM file of its key",
			set: setText(&a.TLSKey)},
		{name: "tls-client-ca", arg: "FILE",
			help: "PEM file of authorities: whoever connects must present a certificate signed " +
				"by one of them (other nodes present their --tls-cert)",
			set: setText(&a.TLSClientCA)},
		{name: "admin-token", arg: "TEXT",
			help: "a token that may do everything; without --tokens, changing the mode requires it",
			set:  setChecked(&a.AdminToken, checkSecret)},
	}
}

// mapped is the number of bits before the IPv4 part of an address such as ::ffff:10.0.0.1.
const mapped = 96

func parseHost(name string) (string, error) {
	if strings.ContainsAny(name, ":/ ") {
		return "", fmt.Errorf("%q is not a host name (it has no port)", name)
	}
	return name, nil
}

// parseNetwork reads a network; an address is a network of one. IPv4 written as IPv6 counts as
// IPv4, as it does in the addresses of clients.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return network, fmt.Errorf("%q is not a network, such as 10.0.0.0/8 or fd00::/8", text)
		}
		network = netip.PrefixFrom(address, address.BitLen())
	}
	if address := network.Addr(); address.Is4In6() {
		if network.Bits() < mapped {
			return network, fmt.Errorf("%q is neither a network of IPv4 nor one of IPv6", text)
		}
		network = netip.PrefixFrom(address.Unmap(), network.Bits()-mapped)
	}
	return network.Masked(), nil
}
