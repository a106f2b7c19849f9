package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"twotier.dev/twotier/internal/redisurl"
)

// setting is the name of a setting, its description in the help, and the function that parses it
// into a field.
type setting struct {
	name, def, arg, help string
	choices              []string // the allowed texts; if empty, anything that set accepts
	// notInFile marks settings that make no sense in a file.
	notInFile bool
	set       func(c *Config, text string) error
}

// settings lists all settings in printing order. It is a function, not a variable, so that nothing
// can change it.
func settings() []setting {
	return slices.Concat(serverSettings(), accessSettings(), clusterSettings(), storeSettings(),
		countingSettings(), outputSettings(), outsideSettings())
}

func serverSettings() []setting {
	return []setting{
		{name: "listen", def: "127.0.0.1:8080", arg: "HOST:PORT",
			help: "address of the HTTP API; port 0 picks a free one",
			set: func(c *Config, text string) error {
				c.Listen = text
				return checkAddress(text)
			}},
		{name: "resp", arg: "HOST:PORT",
			help: "serve Redis clients at this address, which shares the memory and the " +
				"connections of --listen; port 0 picks a free one",
			set: func(c *Config, text string) error { c.Resp = text; return checkOptional(text) }},
		{name: "grpc", arg: "HOST:PORT",
			help: "serve Envoy's rate limit service at this address, with the domains in " +
				"--rules; shares the memory and the connections of --listen; port 0 picks a " +
				"free one",
			set: func(c *Config, text string) error { c.GRPC = text; return checkOptional(text) }},
		{name: "node", arg: "ID",
			help: "name of this server, unique in the cluster; keep it across restarts (made " +
				"up if empty)",
			set: func(c *Config, text string) error { c.Node = text; return checkName(text) }},
		{name: "request-timeout", def: "2s", arg: "DURATION", help: "time limit for one request",
			set: func(c *Config, text string) error {
				return setPositive(&c.RequestTimeout, text)
			}},
		{name: "drain-delay", def: "0s", arg: "DURATION",
			help: "how long to go on serving after SIGTERM, only no longer ready, so that load " +
				"balancers notice before anything is refused",
			set: func(c *Config, text string) error { return setDuration(&c.DrainDelay, text) }},
		{name: "drain-timeout", def: "30s", arg: "DURATION",
			help: "time limit for flushing pending counts after SIGTERM, at least 1ms; the " +
				"flush ends earlier if Redis takes nothing for 10s",
			set: func(c *Config, text string) error { return setPositive(&c.DrainTimeout, text) }},
		{name: "max-connections", def: "0", arg: "N",
			help: "limit on connections to --listen, and on those to --resp and to --grpc; 0: as " +
				"many as memory and RLIMIT_NOFILE allow",
			set: func(c *Config, text string) error { return setCount(&c.MaxConnections, text) }},
		{name: "max-connections-per-address", def: "0", arg: "N",
			help: "limit on those from one IPv4 address or IPv6 /64, which may use the same " +
				"share of the memory for requests; raise it behind a proxy; 0: half of all",
			set: func(c *Config, text string) error {
				return setCount(&c.MaxConnectionsPerAddress, text)
			}},
		{name: rulesKey, arg: "FILE",
			help: "limits that have names, in YAML, or what envoyproxy/ratelimit reads; the " +
				"configuration file may have a list of rules in place of the FILE",
			set: func(c *Config, text string) error { c.Rules = text; return nil }},
		{name: "log-level", def: "info", arg: "LEVEL", help: "debug, info, warn or error",
			choices: []string{"debug", "info", "warn", "error"},
			set: func(c *Config, text string) error {
				return c.LogLevel.UnmarshalText([]byte(text))
			}},
		{name: "log-format", def: "text", arg: "FORMAT", help: "text or json, on stderr",
			choices: []string{"text", "json"},
			set:     func(c *Config, text string) error { c.LogFormat = text; return nil }},
	}
}

func clusterSettings() []setting {
	return []setting{
		{name: "gossip", arg: "HOST:PORT", help: "join a cluster, and gossip at this " +
			"address (UDP and TCP); port 0 picks a free one",
			set: func(c *Config, text string) error {
				c.Gossip = text
				return checkOptional(text)
			}},
		{name: "gossip-advertise", arg: "HOST:PORT",
			help: "where the other nodes reach --gossip, if at another address",
			set: func(c *Config, text string) error {
				c.GossipAdvertise = text
				return checkOptional(text)
			}},
		{name: "advertise", arg: "HOST:PORT",
			help: "where the other nodes reach the HTTP API, if at another address than --listen",
			set: func(c *Config, text string) error {
				c.Advertise = text
				return checkOptional(text)
			}},
		{name: "peer", arg: "HOST:PORT",
			help: "address for messages from other nodes, in place of --listen",
			set:  func(c *Config, text string) error { c.Peer = text; return checkOptional(text) }},
		{name: "join", arg: "HOST:PORT,...",
			help: "gossip addresses of other nodes; this node may be among them",
			set:  func(c *Config, text string) error { return setAddresses(&c.Join, text) }},
		{name: "cluster-secret", arg: "TEXT",
			help: "encrypts and authenticates all messages between nodes; required unless gossip " +
				"and HTTP API can only be reached from this machine",
			set: func(c *Config, text string) error {
				c.ClusterSecret = text
				return checkSecret(text)
			}},
		{name: "cluster-secret-file", arg: "FILE",
			help: "file of such secrets, one per line: the first is used, all are accepted; " +
				"reloaded when it changes",
			set: func(c *Config, text string) error { c.ClusterSecretFile = text; return nil }},
		{name: "hot-rate", def: "2000", arg: "N",
			help: "operations a second on one key of another node before this one borrows " +
				"some of what is left of the key's limits, to decide without asking; 0: never",
			set: func(c *Config, text string) error { return setRate(&c.HotRate, text) }},
	}
}

func storeSettings() []setting {
	return []setting{
		{name: "redis", arg: "URL",
			help: "redis://, rediss://, unix://, redis+cluster://host:port,host:port or " +
				"redis+sentinel://host:port,host:port/master[/db]; without it counts are kept in " +
				"memory only",
			set: func(c *Config, text string) error { c.Redis = text; return checkRedis(text) }},
		{name: "redis-password-file", arg: "FILE", help: "file that holds the password, in place " +
			"of one in the URL; read for each new connection",
			set: func(c *Config, text string) error { c.RedisPasswordFile = text; return nil }},
		{name: "redis-timeout", def: "1s", arg: "DURATION",
			help: "time limit for one exchange with Redis",
			set:  func(c *Config, text string) error { return setPositive(&c.RedisTimeout, text) }},
		{name: "redis-optional", def: "false",
			help: "start even if Redis refuses a password, a certificate, a command or a layout, " +
				"and count in memory; needs --hash-seed",
			set: func(c *Config, text string) error { return setBool(&c.RedisOptional, text) }},
		{name: "redis-expiry", def: "key", arg: "HOW",
			help: "how old buckets leave Redis: key (any server), field (Redis 7.4, Valkey 9) or " +
				"tairhash (the TairHash module; experimental)",
			choices: []string{"key", "field", "tairhash"},
			set:     func(c *Config, text string) error { c.RedisExpiry = text; return nil }},
		{name: "redis-tls-ca", arg: "FILE",
			help: "PEM file of the authorities to trust (default: the system's)",
			set:  func(c *Config, text string) error { c.RedisTLSCA = text; return nil }},
		{name: "redis-tls-cert", arg: "FILE", help: "PEM file of the client's certificate",
			set: func(c *Config, text string) error { c.RedisTLSCert = text; return nil }},
		{name: "redis-tls-key", arg: "FILE", help: "PEM file of the client's key",
			set: func(c *Config, text string) error { c.RedisTLSKey = text; return nil }},
	}
}

func countingSettings() []setting {
	return []setting{
		{name: "mode", def: "two-tier", arg: "MODE",
			help:    "two-tier (count in memory, flush to Redis) or redis (one script per request)",
			choices: []string{"two-tier", "redis"},
			set:     func(c *Config, text string) error { c.Mode = text; return nil }},
		{name: "ack", def: "memory", arg: "WHAT",
			help: "where a count must be before a write is answered, unless the request says " +
				"otherwise: memory, redis, replica (of Redis; survives a failover) or disk (the " +
				"append-only file of Redis 7.2)",
			choices: []string{"memory", "redis", "replica", "disk"},
			set:     func(c *Config, text string) error { c.Ack = text; return nil }},
		{name: "ack-replicas", def: "1", arg: "N",
			help: "how many replicas of each primary must have a count with ack=replica; set it " +
				"to all that may be promoted to be sure",
			set: func(c *Config, text string) error { return setReplicas(&c.AckReplicas, text) }},
		{name: "flush-interval", def: "200ms", arg: "DURATION",
			help: "time between two flushes to Redis",
			set: func(c *Config, text string) error {
				return setPositive(&c.FlushInterval, text)
			}},
		{name: "max-lag", def: "10s", arg: "DURATION",
			help: "limit on the age of counts that Redis does not have, while it answers: " +
				"writes to further keys wait, then get 429; at least two flush intervals; " +
				"0: bounded by memory only",
			set: func(c *Config, text string) error { return setDuration(&c.MaxLag, text) }},
		{name: "max-memory", def: "1GiB", arg: "SIZE",
			help: "memory limit for counters: 1GiB, 512MiB, 100MB; the process uses up to 1.3 " +
				"times as much plus 64 MiB",
			set: func(c *Config, text string) error { return setMemory(&c.MaxMemory, text) }},
		{name: "on-cold", def: "allow", arg: "WHAT",
			help: "allow or deny an acquire of a key that is not in memory while Redis is known " +
				"to be unreachable; while it is slow or answers with errors, such requests " +
				"wait, then get 503",
			choices: coldChoices(),
			set:     func(c *Config, text string) error { c.OnCold = text; return nil }},
		{name: "partitions", def: "257", arg: "N",
			help: "number of partitions; must stay the same while Redis holds counts",
			set:  func(c *Config, text string) error { return setPartitions(&c.Partitions, text) }},
		{name: "hash-seed", arg: "N",
			help: "seed of the hash of keys; must stay the same while Redis holds counts " +
				"(default: drawn once and kept in Redis; a node that doesn't know it waits for " +
				"Redis before it serves, or ends with --mode=redis)",
			set: func(c *Config, text string) error { return setSeed(&c.HashSeed, text) }},
	}
}

func outsideSettings() []setting {
	return []setting{
		{name: "config", arg: "FILE",
			help: "read settings from a YAML file of lines \"name: value\"", notInFile: true,
			set: func(*Config, string) error { return nil }},
		{name: "print-config", def: "false",
			help: "print all settings and where each one was set, then exit", notInFile: true,
			set: func(c *Config, text string) error { return setBool(&c.PrintConfig, text) }},
	}
}

// check checks that the values are consistent, once each value is valid by itself.
func (c *Config) check() error {
	if err := cmp.Or(c.checkListeners(), c.checkCluster(), c.checkAccess(),
		c.checkLag()); err != nil {
		return err
	}
	if c.RedisPasswordFile != "" && c.Redis == "" {
		return errors.New("--redis-password-file: needs --redis")
	}
	if most := c.MaxConnections; most > 0 && c.MaxConnectionsPerAddress > most {
		return fmt.Errorf("--max-connections-per-address: %d are more than --max-connections "+
			"allows, %d", c.MaxConnectionsPerAddress, most)
	}
	if c.Redis == "" && (c.Ack == "replica" || c.Ack == "disk") {
		return fmt.Errorf("--ack: %s needs --redis, which provides it", c.Ack)
	}
	if c.Mode == "redis" && c.Redis == "" {
		return errors.New("--mode: redis needs --redis to say where it is")
	}
	if err := c.checkOptional(); err != nil {
		return err
	}
	if (c.RedisTLSCert == "") != (c.RedisTLSKey == "") {
		return errors.New("--redis-tls-cert and --redis-tls-key: give both or neither")
	}
	withTLS := c.RedisTLSCA != "" || c.RedisTLSCert != ""
	if to, err := redisurl.Parse(c.Redis); withTLS && (err != nil || !to.TLS) {
		return errors.New("--redis-tls-ca, --redis-tls-cert and --redis-tls-key need a --redis " +
			"URL with TLS, such as rediss://host:6379")
	}
	return nil
}

// checkOptional checks that a server which may start without Redis is configured with everything it
// would otherwise read from Redis.
func (c *Config) checkOptional() error {
	switch {
	case !c.RedisOptional:
		return nil
	case c.Redis == "" || c.Mode == "redis":
		return errors.New("--redis-optional: needs --redis, and --mode two-tier")
	case c.HashSeed == nil:
		return errors.New("--redis-optional: needs --hash-seed, which Redis would tell otherwise")
	}
	return nil
}

// checkCluster checks the settings of a cluster.
func (c *Config) checkCluster() error {
	if c.Gossip == "" {
		for _, s := range []struct {
			name string
			set  bool
		}{{"join", len(c.Join) > 0}, {"gossip-advertise", c.GossipAdvertise != ""},
			{"cluster-secret", c.HasClusterSecret()},
			{"peer", c.Peer != ""}} {
			if s.set {
				return fmt.Errorf("--%s: needs --gossip, such as --gossip 127.0.0.1:7946", s.name)
			}
		}
		return nil
	}
	if c.Redis == "" {
		return errors.New("--gossip: a cluster needs --redis: that is where its nodes meet")
	}
	const remedy = "set --cluster-secret (better TWOTIER_CLUSTER_SECRET), the same on all nodes"
	peers := cmp.Or(c.Peer, c.Listen)
	switch {
	case c.ClusterSecret != "" && c.ClusterSecretFile != "":
		return errors.New("--cluster-secret and --cluster-secret-file: give only one of them")
	case c.HasClusterSecret():
	case !isLoopback(c.Gossip):
		return fmt.Errorf("--gossip: %s can be reached by others: %s", c.Gossip, remedy)
	case !isLoopback(peers) && c.Peer != "":
		return fmt.Errorf("--peer: %s can be reached by others: %s", peers, remedy)
	case !isLoopback(peers):
		return fmt.Errorf("--listen: %s can be reached by others, and takes messages of other "+
			"nodes: %s", peers, remedy)
	case c.TLSCert != "":
		return fmt.Errorf("--tls-cert: nodes that use TLS among themselves also need a "+
			"secret: %s", remedy)
	}
	return nil
}

func setAddresses(to *[]string, text string) error {
	*to = nil
	for _, address := range strings.Split(text, ",") {
		if address = strings.TrimSpace(address); address == "" {
			continue
		}
		if err := checkAddress(address); err != nil {
			return err
		}
		*to = append(*to, address)
	}
	return nil
}

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

const leastSecret = 16

func checkOptional(text string) error {
	if text == "" {
		return nil
	}
	return checkAddress(text)
}

// coldChoices returns the possible answers to an acquire of a key that can't be read.
func coldChoices() []string { return []string{"allow", "deny"} }

// checkChoice refuses a text that is not one of the choices. Without choices it accepts any text.
func checkChoice(text string, choices []string) error {
	if len(choices) == 0 || slices.Contains(choices, text) {
		return nil
	}
	last := len(choices) - 1
	return fmt.Errorf("%q is not one of %s or %s", text, strings.Join(choices[:last], ", "),
		choices[last])
}

func setDuration(to *time.Duration, text string) (err error) {
	*to, err = ParseDuration(text)
	return err
}

func setPositive(to *time.Duration, text string) error {
	if err := setDuration(to, text); err != nil {
		return err
	}
	if *to < time.Millisecond {
		return fmt.Errorf("%s is too short, want at least 1ms", text)
	}
	return nil
}
