package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/redisurl"
	"twotier.dev/twotier/leaparray"
)

// Store holds the settings of Redis, whose URL is empty without it, and of the counters in memory.
type Store struct {
	Redis, RedisPasswordFile, RedisPrefix string
	RedisTimeout                          time.Duration
	// RedisTLSCA, RedisTLSCert and RedisTLSKey are paths; the last two are both set or both empty.
	RedisTLSCA, RedisTLSCert, RedisTLSKey string
	RedisExpiry, Mode, Ack                string
	AckReplicas                           int
	FlushInterval, MaxLag                 time.Duration
	MaxMemory                             int64 // in bytes
	OnCold                                string
	Partitions                            int
	// HashSeed is nil if the seed is that of the data in Redis, or else random.
	HashSeed *uint64
}

func storeSettings(s *Store) []setting {
	return []setting{
		{name: "redis", arg: "URL",
			help: "redis://, rediss://, unix://, redis+cluster://host:port,host:port[/db] or " +
				"redis+sentinel://host:port,host:port/master[/db]; without it counts are kept in " +
				"memory only",
			set: setChecked(&s.Redis, checkRedis)},
		{name: "redis-password-file", arg: "FILE", help: "file that holds the password, in place " +
			"of one in the URL; read for each new connection",
			set: setText(&s.RedisPasswordFile)},
		{name: "redis-prefix", def: "tt", arg: "TEXT",
			help: "first part of all keys in Redis, before a colon; services with different " +
				"prefixes share a Redis and nothing in it; the same on all nodes of a cluster",
			set: setChecked(&s.RedisPrefix, checkPrefix)},
		{name: "redis-timeout", def: "1s", arg: "DURATION", advanced: true,
			help: "time limit for one exchange with Redis",
			set:  setParsed(&s.RedisTimeout, parsePositive)},
		{name: "redis-expiry", def: "key", arg: "HOW", advanced: true,
			help: "how old buckets leave Redis: key (any server), field (Redis 7.4, Valkey 9) or " +
				"tairhash (the TairHash module; experimental)",
			choices: []string{"key", "field", "tairhash"},
			set:     setText(&s.RedisExpiry)},
		{name: "redis-tls-ca", arg: "FILE",
			help: "PEM file of the authorities to trust (default: the system's)",
			set:  setText(&s.RedisTLSCA)},
		{name: "redis-tls-cert", arg: "FILE", help: "PEM file of the client's certificate",
			set: setText(&s.RedisTLSCert)},
		{name: "redis-tls-key", arg: "FILE", help: "PEM file of the client's key",
			set: setText(&s.RedisTLSKey)},
	}
}

func countingSettings(s *Store) []setting {
	return []setting{
		{name: "mode", def: "two-tier", arg: "MODE",
			help:    "two-tier (count in memory, flush to Redis) or redis (one script per request)",
			choices: []string{"two-tier", "redis"},
			set:     setText(&s.Mode)},
		{name: "ack", def: "memory", arg: "WHAT",
			help: "where a count must be before a write is answered, unless the request says " +
				"otherwise: memory, redis, replica (of Redis; survives a failover) or disk (the " +
				"append-only file of Redis 7.2)",
			choices: []string{"memory", "redis", "replica", "disk"},
			set:     setText(&s.Ack)},
		{name: "ack-replicas", def: "1", arg: "N", advanced: true,
			help: "how many replicas of each primary must have a count with ack=replica; set it " +
				"to all that may be promoted to be sure",
			set: setParsed(&s.AckReplicas,
				parseIntegerWithin(1, math.MaxInt, "a number of replicas, 1 or more"))},
		{name: "flush-interval", def: "200ms", arg: "DURATION",
			help: "time between two flushes to Redis",
			set:  setParsed(&s.FlushInterval, parsePositive)},
		{name: "max-lag", def: "10s", arg: "DURATION", advanced: true,
			help: "limit on the age of counts that Redis does not have, while it answers: " +
				"writes to further keys wait, then get 429; at least two flush intervals; " +
				"0: bounded by memory only",
			set: setParsed(&s.MaxLag, ParseDuration)},
		{name: "max-memory", def: "1GiB", arg: "SIZE",
			help: "memory limit for counters: 1GiB, 512MiB, 100MB; the process uses up to 1.3 " +
				"times as much plus 64 MiB",
			set: setParsed(&s.MaxMemory, parseMemory)},
		{name: "on-cold", def: "allow", arg: "WHAT",
			help: "allow or deny an acquire of a key that is not in memory while Redis is known " +
				"to be unreachable; while it is slow or answers with errors, such requests " +
				"wait, then get 503",
			choices: coldChoices(),
			set:     setText(&s.OnCold)},
		{name: "partitions", def: "257", arg: "N", advanced: true,
			help: "number of partitions; must stay the same while Redis holds counts",
			set: setParsed(&s.Partitions,
				parseIntegerWithin(1, 1<<16, "a number from 1 to 65536"))},
		{name: "hash-seed", arg: "N", advanced: true,
			help: "seed of the hash of keys; must stay the same while Redis holds counts " +
				"(default: drawn once and kept in Redis; a node that doesn't know it waits for " +
				"Redis before it serves, or ends with --mode=redis)",
			set: setParsed(&s.HashSeed, parseSeed)},
	}
}

// checkStore checks the settings of Redis and of counting.
func (s *Store) checkStore() error {
	withTLS := s.RedisTLSCA != "" || s.RedisTLSCert != ""
	to, err := redisurl.Parse(s.Redis)
	switch {
	case s.RedisPasswordFile != "" && s.Redis == "":
		return errors.New("--redis-password-file: needs --redis")
	case s.Redis == "" && s.Ack != "memory":
		return fmt.Errorf("--ack: %s needs --redis, which provides it", s.Ack)
	case s.Mode == "redis" && s.Redis == "":
		return errors.New("--mode: redis needs --redis to say where it is")
	case (s.RedisTLSCert == "") != (s.RedisTLSKey == ""):
		return errors.New("--redis-tls-cert and --redis-tls-key: give both or neither")
	case withTLS && (err != nil || !to.TLS):
		return errors.New("--redis-tls-ca, --redis-tls-cert and --redis-tls-key need a --redis " +
			"URL with TLS, such as rediss://host:6379")
	}
	return nil
}

// coldChoices returns the possible answers to an acquire of a key that can't be read.
func coldChoices() []string { return []string{"allow", "deny"} }

func checkRedis(text string) error {
	if text == "" {
		return nil
	}
	_, err := redisurl.Parse(text)
	return err
}

// DefaultNamespace is the namespace of requests without one.
const DefaultNamespace = "default"

// Namespace holds the settings of one namespace.
type Namespace struct {
	// Levels lists the levels of buckets, finest first.
	Levels []Level
	// Exact is how many of the newest events of a key keep their millisecond; 0 turns that off.
	Exact int
	// ExactValues is how many different values of a key are counted exactly; more are estimated.
	ExactValues int
	// OnCold is as in [Store].
	OnCold string
	// MaxKeys bounds the number of keys in memory; 0 means that only memory bounds it.
	MaxKeys int
	// HashTags makes the part of a key in braces determine its partition.
	HashTags bool
	// Shadow makes the limits of the namespace refuse nothing.
	Shadow bool
}

// Ladder returns the ladder of the namespace's levels.
func (ns *Namespace) Ladder() (*leaparray.Ladder, error) {
	return leaparray.NewLadder(ns.Exact, ns.Levels...)
}

// InShadow returns the namespaces whose limits refuse nothing, or nil if there are none.
func (c *Config) InShadow() twotier.Shadow {
	return c.Having(func(ns *Namespace) bool { return c.Shadow || ns.Shadow })
}

// Having returns which namespaces have a property, or nil if none has.
func (c *Config) Having(property func(ns *Namespace) bool) map[string]bool {
	all, some := map[string]bool{}, false
	for name, ns := range c.Namespaces {
		all[name] = property(&ns)
		some = some || all[name]
	}
	if !some {
		return nil
	}
	return all
}

// WhereShadow returns where shadow was set for a namespace, or for the namespace that it inherits
// from: FILE:LINE:COLUMN, or "" if the namespace has the default.
func (c *Config) WhereShadow(namespace string) string {
	return c.namespaceValues[namespace][shadowOption].where
}

// Level is a number of buckets of one width.
type Level = leaparray.Level

// The options that are settings of the server, too, or whose values are changed.
const (
	ladderOption = "ladder"
	onColdOption = "on-cold"
	shadowOption = "shadow"
)

// maxValues bounds the memory of a key with different values: 16 bytes for each.
const maxValues = 1 << 16

// namespaceSettings lists the options of a namespace in printing order. They are parsed into ns.
func namespaceSettings(ns *Namespace) []setting {
	return []setting{
		{name: ladderOption, def: leaparray.Default().String(), arg: "LEVEL,...",
			set: setParsed(&ns.Levels, ParseLadder)},
		{name: "exact", def: strconv.Itoa(leaparray.DefaultExact),
			set: setParsed(&ns.Exact, parseIntegerWithin(0, leaparray.MaxExact,
				fmt.Sprintf("a number of events, 0 to %d", leaparray.MaxExact)))},
		{name: "exact-values", def: strconv.Itoa(leaparray.DefaultMostValues),
			set: setParsed(&ns.ExactValues, parseIntegerWithin(1, maxValues,
				fmt.Sprintf("a number of values, 1 to %d", maxValues)))},
		{name: onColdOption, choices: coldChoices(), set: setText(&ns.OnCold)},
		{name: "max-keys", def: "0", set: setParsed(&ns.MaxKeys,
			parseIntegerWithin(0, math.MaxInt, "a number of keys, 0 or more"))},
		{name: "hash-tags", def: "false", set: setParsed(&ns.HashTags, parseBool)},
		{name: shadowOption, def: "false", set: setParsed(&ns.Shadow, parseBool)},
	}
}

// ParseLadder reads levels such as "1s x 60, 1m x 60, 15m x 96": the width of a bucket and the
// number of buckets, finest level first. [leaparray.NewLadder] checks that the levels form a
// ladder.
func ParseLadder(text string) ([]Level, error) {
	var levels []Level
	for part := range strings.SplitSeq(text, ",") {
		level, err := parseLevel(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		levels = append(levels, level)
	}
	if _, err := leaparray.NewLadder(0, levels...); err != nil {
		return nil, err
	}
	return levels, nil
}

func parseLevel(text string) (Level, error) {
	width, count, ok := strings.Cut(text, "x")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil {
		return Level{}, fmt.Errorf("%q is not WIDTH x COUNT, such as 1s x 60", text)
	}
	w, err := ParseDuration(strings.TrimSpace(width))
	return Level{Width: w, Count: n}, err
}
