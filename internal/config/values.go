package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/internal/hostname"
)

// leastMemory is enough for a few hundred keys. A smaller value is probably a mistake in the unit.
const leastMemory = 64 << 10

func parseMemory(text string) (int64, error) {
	n, err := ParseSize(text)
	if err == nil && n < leastMemory {
		err = fmt.Errorf("%s is too small, want at least 64KiB", text)
	}
	return n, err
}

// parsePositive reads a duration of at least 1ms.
func parsePositive(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d < time.Millisecond {
		err = fmt.Errorf("%s is too short, want at least 1ms", text)
	}
	return d, err
}

// parseIntegerWithin returns a function that reads a number within bounds. want describes it in
// errors.
func parseIntegerWithin(least, most int, want string) func(text string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not %s", text, want)
		}
		return n, nil
	}
}

// setList returns a setter that parses the items of a list with commas between them.
func setList[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return setParsed(to, func(text string) (list []T, err error) {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			item, err := parse(part)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	})
}

func parseSeed(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number from 0 to 2^64-1", text)
	}
	return &n, nil
}

func parseBool(text string) (bool, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return b, nil
}

// CheckName accepts the names of nodes, tokens and namespaces: up to 64 letters, digits, dots,
// dashes and underscores.
func CheckName(text string) error {
	if text == "" {
		return errors.New("the name is empty")
	}
	return checkName(text)
}

// checkName accepts the same names as CheckName, and the empty name, which asks the node to choose
// one.
func checkName(text string) error {
	if len(text) > 64 || !isWord(text) {
		return fmt.Errorf("%q is not up to 64 letters, digits, dots, dashes and underscores", text)
	}
	return nil
}

// checkPrefix accepts the first part of all keys in Redis.
func checkPrefix(text string) error {
	if len(text) < 1 || len(text) > 32 || !isWord(text) {
		return fmt.Errorf("%q is not 1 to 32 letters, digits, dots, dashes and underscores", text)
	}
	return nil
}

// isWord reports whether text consists of ASCII letters, digits, dots, dashes and underscores.
func isWord(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-", r))
	})
}

const day = 24 * time.Hour

// ErrMonths refuses a number of months as a duration.
var ErrMonths = errors.New("a month has no fixed length; want days, such as 30d, or in a limit " +
	"the window month")

// ParseDuration reads a Go duration, optionally with weeks and days in front: 200ms, 90s, 24h, 7d,
// 2w, 1d2h3m4s. A negative duration is an error. A number of months is [ErrMonths].
func ParseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration, such as 200ms, 90s, 24h or 1d12h", text)
	if strings.Contains(text, "mo") {
		bad = fmt.Errorf("%q: %w", text, ErrMonths)
	}
	total, rest := time.Duration(0), text
	for _, unit := range [...]struct {
		name   string
		length time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return 0, bad
		}
		if n > uint64((math.MaxInt64-total)/unit.length) {
			return 0, fmt.Errorf("%q is longer than 292 years", text)
		}
		total, rest = total+time.Duration(n)*unit.length, after
	}
	if rest == "" && text != "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.ContainsAny(rest[:1], "+-") {
		return 0, bad
	}
	if d > math.MaxInt64-total {
		return 0, fmt.Errorf("%q is longer than 292 years", text)
	}
	return total + d, nil
}

// ParseSize reads a number of bytes: 1GiB (1024 based), 100MB (1000 based), 1.5GiB or 1048576, in
// any case.
func ParseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "BKMGTIbkmgti")
	unit, ok := sizeUnit(strings.ToLower(strings.TrimPrefix(text, number)))
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || math.IsNaN(n) || n < 0 {
		return 0, fmt.Errorf("%q is not a size, such as 1GiB, 512MiB or 100MB", text)
	}
	if n*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more memory than any machine has", text)
	}
	return int64(n * unit), nil
}

func sizeUnit(text string) (float64, bool) {
	if text == "" || text == "b" {
		return 1, true
	}
	power := strings.IndexByte("kmgt", text[0]) + 1
	switch {
	case power == 0:
		return 0, false
	case text[1:] == "b":
		return math.Pow(1000, float64(power)), true
	case text[1:] == "ib":
		return math.Pow(1024, float64(power)), true
	}
	return 0, false
}

// check checks that the values are consistent, once each value is valid by itself.
func (c *Config) check() error {
	if err := cmp.Or(c.checkListeners(), c.checkCluster(), c.checkAccess()); err != nil {
		return err
	}
	// Counts would exceed such a lag merely by waiting for the next flush.
	if c.MaxLag > 0 && c.MaxLag < 2*c.FlushInterval {
		return fmt.Errorf("--max-lag: %v is less than two flush intervals of %v", c.MaxLag,
			c.FlushInterval)
	}
	if most := c.MaxConnections; most > 0 && c.MaxConnectionsPerAddress > most {
		return fmt.Errorf("--max-connections-per-address: %d are more than --max-connections "+
			"allows, %d", c.MaxConnectionsPerAddress, most)
	}
	return c.checkStore()
}

// checkListeners refuses two listeners at one address. Otherwise the second one would fail with an
// error that blames another process.
func (c *Config) checkListeners() error {
	listeners := []struct{ flag, address, remedy string }{
		{"listen", c.Listen, ""},
		{"resp", c.Resp, ""},
		{"grpc", c.GRPC, ""},
		{"admin", c.Admin, ", or leave --admin out to have both there"},
		{"peer", c.Peer, ", or leave --peer out to have nodes use --listen"},
		{"gossip", c.Gossip, ""},
	}
	for i, l := range listeners {
		for _, other := range listeners[:i] {
			if addressesOverlap(l.address, other.address) {
				return fmt.Errorf("--%s: --%s listens at %s already; name another port%s",
					l.flag, other.flag, other.address, l.remedy)
			}
		}
	}
	return nil
}

func (c *Config) checkCluster() error {
	if c.Gossip == "" {
		for _, s := range []struct {
			name string
			set  bool
		}{{"join", len(c.Join) > 0}, {"gossip-advertise", c.GossipAdvertise != ""},
			{"cluster-secret", c.hasClusterSecret()},
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
	case c.hasClusterSecret():
	case !hostname.IsLoopback(c.Gossip):
		return fmt.Errorf("--gossip: %s can be reached by others: %s", c.Gossip, remedy)
	case !hostname.IsLoopback(peers) && c.Peer != "":
		return fmt.Errorf("--peer: %s can be reached by others: %s", peers, remedy)
	case !hostname.IsLoopback(peers):
		return fmt.Errorf("--listen: %s can be reached by others, and takes messages of other "+
			"nodes: %s", peers, remedy)
	case c.TLSCert != "":
		return fmt.Errorf("--tls-cert: nodes that use TLS among themselves also need a "+
			"secret: %s", remedy)
	}
	return nil
}

// checkAccess checks the access settings. Without tokens it refuses an address that other machines
// can reach, unless --insecure allows it.
func (c *Config) checkAccess() error {
	switch {
	case c.Tokens != "" && c.Insecure:
		return errors.New("--insecure: there are --tokens; give only one of them")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key: give both or neither")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("--tls-client-ca: needs --tls-cert and --tls-key")
	case c.Tokens != "" || c.Insecure:
		return nil
	}
	for _, l := range []struct{ flag, address string }{{"listen", c.Listen}, {"resp", c.Resp},
		{"grpc", c.GRPC}, {"admin", c.Admin}} {
		if l.address != "" && !hostname.IsLoopback(l.address) {
			return fmt.Errorf("--%s: %s can be reached by others, who could count, read and "+
				"reset whatever they like: "+
				"set --tokens FILE (twotier token makes what is in it), or --insecure if "+
				"something else keeps them out", l.flag, l.address)
		}
	}
	return nil
}

// addressesOverlap reports whether one process can't listen on both addresses. Names are not
// resolved: a name only overlaps with the same name.
func addressesOverlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a) // both were checked to be addresses or empty
	hostB, portB, _ := net.SplitHostPort(b)
	if portA != portB || portA == "" || portA == "0" {
		return false
	}
	ipA, errA := addressOf(hostA)
	ipB, errB := addressOf(hostB)
	if cmp.Or(errA, errB) != nil {
		return hostA == hostB
	}
	return covers(ipA, ipB) || covers(ipB, ipA)
}

// addressOf returns the IP address of a host. An empty host means any address, IPv4 and IPv6.
func addressOf(host string) (netip.Addr, error) {
	switch host {
	case "":
		return netip.IPv6Unspecified(), nil
	case "localhost":
		host = "127.0.0.1" // net.Listen prefers it to ::1
	}
	ip, err := netip.ParseAddr(host)
	return ip.Unmap(), err
}

// covers reports whether listening at a includes listening at b.
func covers(a, b netip.Addr) bool {
	return a == b || a.IsUnspecified() && (a.Is6() || b.Is4())
}

func checkAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:8080", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

// checkOptionalAddress accepts an address or nothing.
func checkOptionalAddress(text string) error {
	if text == "" {
		return nil
	}
	return checkAddress(text)
}
