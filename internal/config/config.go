package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
	"twotier.dev/twotier/leaparray"
)

// DefaultNamespace is the namespace of requests without one.
const DefaultNamespace = "default"

// Config holds the settings of a server. A Config returned by Parse is complete and valid: a zero
// value stands for a default only in fields documented that way.
type Config struct {
	// Listen is the host:port of the HTTP server; port 0 picks a free one.
	Listen string
	// Resp is the host:port for Redis clients; empty means no listener for them.
	Resp string
	// GRPC is the host:port for Envoy; empty means no gRPC.
	GRPC string
	// Redis is the URL of the store; empty means the embedded store.
	Redis string
	// RedisTimeout bounds one exchange with Redis, at least 1ms.
	RedisTimeout time.Duration
	// RedisOptional makes the server start even if Redis can't be used as configured.
	RedisOptional bool
	// RedisTLSCA, RedisTLSCert and RedisTLSKey are paths of PEM files; empty means the system's
	// roots and no client certificate. The last two are both set or both empty.
	RedisTLSCA, RedisTLSCert, RedisTLSKey string
	// RedisExpiry is "key", "field" or "tairhash".
	RedisExpiry string
	// Mode is "two-tier" or "redis".
	Mode string
	// Ack is "memory", "redis", "replica" or "disk": the ack level of writes that name none.
	Ack string
	// AckReplicas is how many replicas must have a count before "replica" is answered: 1 or more.
	AckReplicas int
	// Node identifies this server, 1 to 64 letters, digits, dots, dashes and underscores; empty
	// makes the server choose a name.
	Node string
	// Gossip is the host:port for the cluster's gossip; empty means that there is no cluster.
	// GossipAdvertise is where other nodes reach it, and Advertise where they reach the HTTP API;
	// empty means the address that this server listens on. Join lists the gossip addresses of other
	// nodes.
	Gossip, GossipAdvertise, Advertise string
	Join                               []string
	// Tokens is the path of the file with tokens and their permissions; if it is empty, anyone who
	// can connect may do everything except administer. Insecure allows that on addresses that other
	// machines can reach. Hosts are the names that clients may use for the server.
	Tokens   string
	Insecure bool
	Hosts    []string
	// TrustedProxies are the networks of proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Rules is the path of the file of rules. RuleList is the list of rules in the configuration
	// file, if it contains one. At most one of them is set.
	Rules    string
	RuleList *strictyaml.Node
	// Admin is the host:port for administration, and Peer the host:port for messages of other
	// nodes; empty means that Listen serves them.
	Admin, Peer string
	// TLSCert, TLSKey and TLSClientCA are paths of PEM files: the first two are both set, or both
	// empty for plain connections; the last is empty if clients need no certificate.
	TLSCert, TLSKey, TLSClientCA string
	// ClusterSecret is the secret that all nodes share, empty only if all are on one machine.
	// AdminToken may do everything. Without Tokens, a call that changes the mode must present it,
	// and if it is empty there is no such call.
	ClusterSecret, AdminToken string
	// ClusterSecretFile is the path of a file of such secrets, used instead of ClusterSecret.
	// RedisPasswordFile is the path of a file with the password of Redis, used instead of the
	// password in the URL.
	ClusterSecretFile, RedisPasswordFile string
	// HotRate is how many operations a second on a key of another node make this node borrow a part
	// of the key's remaining limits; 0 means never.
	HotRate int
	// FlushInterval is the time between two flushes, at least 1ms.
	FlushInterval time.Duration
	// MaxLag bounds the age of counts that Redis has not acknowledged, as long as Redis answers; 0
	// means that only memory bounds it.
	MaxLag time.Duration
	// DrainDelay is how long a stopping server goes on serving while it reports that it is not
	// ready; 0 means not at all.
	DrainDelay time.Duration
	// DrainTimeout bounds how long a stopping server flushes, at least 1ms.
	DrainTimeout time.Duration
	// MaxMemory bounds the counters in memory, in bytes.
	MaxMemory int64
	// RequestTimeout bounds one request, at least 1ms.
	RequestTimeout time.Duration
	// MaxConnections bounds the connections to Listen, and separately the connections to Resp; 0
	// means as many as memory and RLIMIT_NOFILE allow. MaxConnectionsPerAddress bounds the
	// connections from one address; 0 means half of all.
	MaxConnections, MaxConnectionsPerAddress int
	// OnCold is "allow" or "deny": the answer to an acquire of a key that is not in memory while
	// the store is known to be unreachable.
	OnCold string
	// Partitions is the number of partitions, 1 to 65536, and HashSeed the seed of the hash that
	// assigns keys to them. Both must stay the same as long as the counts in Redis matter. A nil
	// seed means the seed of the data in Redis, or a random one.
	Partitions int
	HashSeed   *uint64
	// LogLevel is the least severe level that is logged, LogFormat is "text" or "json".
	LogLevel  slog.Level
	LogFormat string
	// Decisions is the path of the file that decisions are written to, [Stdout], or empty for none.
	// DecisionsSample is the sampling rate of each verdict.
	Decisions       string
	DecisionsSample [twotier.VerdictCount]float64
	// OTLPEndpoint is the URL that spans are posted to, or empty if none are recorded.
	OTLPEndpoint string
	// OTLPIgnored is the reason why the collector that the variables of OpenTelemetry name gets no
	// spans; it is nil if they name none, or if another collector gets them.
	OTLPIgnored error
	// Variables are the names of all TWOTIER_* variables, whether they are settings or not.
	Variables []string
	// Namespaces holds at least the default namespace. Namespaces that are missing from it have the
	// settings of the default one.
	Namespaces map[string]Namespace
	// File is the path of the configuration file; empty if there was none.
	File string
	// PrintConfig asks to print the configuration instead of serving.
	PrintConfig bool

	values          map[string]value
	namespaceValues map[string]map[string]value
}

// Namespace holds the settings of one namespace.
type Namespace struct {
	// Levels lists the levels of buckets, finest first.
	Levels []Level
	// Exact is how many of the newest events of a key keep their millisecond; 0 turns that off.
	Exact int
	// OnCold is as in [Config].
	OnCold string
	// MaxKeys bounds the number of keys in memory; 0 means that only memory bounds it.
	MaxKeys int64
	// HashTags makes the part of a key in braces determine its partition.
	HashTags bool
}

// Ladder returns the ladder of the namespace's levels.
func (ns *Namespace) Ladder() (*leaparray.Ladder, error) {
	return leaparray.NewLadder(ns.Exact, ns.Levels...)
}

// Level is a number of buckets of one width.
type Level = leaparray.Level

// Origin is the place where a value was set.
type Origin string

// The origins of a value, the strongest first.
const (
	FromFlag        Origin = "flag"
	FromEnvironment Origin = "environment"
	FromFile        Origin = "file"
	FromDefault     Origin = "default"
)

// value is the text of a setting and where it was set: the name of the variable, or file, line and
// column.
type value struct {
	text   string
	origin Origin
	where  string
}

// Parse combines args (without the names of the program and the command), environ (NAME=value, as
// [os.Environ]) and the file that they name into settings.
func Parse(args, environ []string) (Config, error) {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	load := Bind(fs)
	if err := fs.Parse(args); err != nil {
		return Config{}, err
	}
	return load(environ)
}

// LogFormat returns the log format that args, environ and the file they name ask for, whatever else
// is wrong with them, so that even the error about them can be logged in it. It is empty if none of
// them sets it.
func LogFormat(args, environ []string) string {
	const name = "log-format"
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	values := bindFlags(fs)
	_ = fs.Parse(args) // the flags before a mistake count
	for key, v := range fromEnviron(environ) {
		if _, ok := values[key]; !ok {
			values[key] = v
		}
	}
	if v, ok := values[name]; ok || values["config"].text == "" {
		return v.text
	}
	file, _ := readFile(values["config"].text) // its readable part counts
	return file.settings[name].text
}

// Where returns where a setting was set: --NAME, a variable, or FILE:LINE:COLUMN. It is empty if
// the setting has its default.
func (c *Config) Where(name string) string {
	switch v := c.values[name]; v.origin {
	case FromFlag:
		return "--" + name
	case FromEnvironment, FromFile:
		return v.where
	}
	return ""
}

// Bind adds a flag for each setting to fs. Once fs has been parsed, load combines the flags,
// environ and the file that they name into settings. It ignores variables that are empty or not a
// setting, because orchestrators add TWOTIER_* variables; package lint warns about unknown ones.
// Its error names every bad setting and contains no password.
func Bind(fs *pflag.FlagSet) (load func(environ []string) (Config, error)) {
	flags := bindFlags(fs)
	return func(environ []string) (Config, error) {
		values := fromEnviron(environ)
		maps.Copy(values, flags)
		c := Config{values: values, File: values["config"].text, Variables: ours(environ)}
		ignored := addCollector(values, variables(environ))
		var file fileValues
		if c.File != "" {
			var err error
			if file, err = readFile(c.File); err != nil {
				return Config{}, err
			}
		}
		err := c.fill(file)
		if c.OTLPEndpoint == "" { // the file names none either
			c.OTLPIgnored = ignored
		}
		return c, err
	}
}

// fill sets the fields of c from c.values, from the file and from the defaults.
func (c *Config) fill(file fileValues) error {
	for name, v := range file.settings {
		if _, ok := c.values[name]; !ok {
			c.values[name] = v
		}
	}
	var errs []error
	if _, ok := c.values[rulesKey]; !ok {
		c.RuleList = file.rules
	}
	for _, s := range settings() {
		v, ok := c.values[s.name]
		if !ok {
			v = value{text: s.def, origin: FromDefault}
			c.values[s.name] = v
		}
		if err := cmp.Or(checkChoice(v.text, s.choices), s.set(c, v.text)); err != nil {
			errs = append(errs, v.wrap(s.name, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.check())
	}
	return errors.Join(append(errs, c.fillNamespaces(file.namespaces))...)
}

// checkLag refuses a bound so short that counts exceed it merely by waiting for the next flush.
func (c *Config) checkLag() error {
	if c.MaxLag > 0 && c.MaxLag < 2*c.FlushInterval {
		return fmt.Errorf("--max-lag: %v is less than two flush intervals of %v", c.MaxLag,
			c.FlushInterval)
	}
	return nil
}

// HasClusterSecret reports whether nodes share a secret.
func (c *Config) HasClusterSecret() bool {
	return c.ClusterSecret != "" || c.ClusterSecretFile != ""
}

// wrap adds to err the name of the setting and, unless it was a flag, where it was set.
func (v value) wrap(name string, err error) error {
	switch v.origin {
	case FromFile:
		return fmt.Errorf("%s: %s: %w", v.where, name, err)
	case FromEnvironment:
		return fmt.Errorf("--%s: %w (from %s)", name, err, v.where)
	}
	return fmt.Errorf("--%s: %w", name, err)
}
