package doctor

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/redisstore"
)

// Level is the severity of a finding.
type Level string

// The levels of a finding. With a problem, a server does not start, or loses counts that it has
// promised to keep; with a warning it works, but less well than it could.
const (
	Fine    Level = "ok"
	Warning Level = "warning"
	Problem Level = "problem"
)

// Finding is the result of one check.
type Finding struct {
	Level Level `json:"level"`
	// About is the subject of the check, such as "persistence of 10.0.0.1:6379".
	About string `json:"about"`
	// Found is the state, and Do the change to make; empty if there is none.
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// Refused returns the finding about whether Redis can be used as configured: err is the reason if
// it can't. It covers the password, the ACL, commands, the layout and hash tags.
func Refused(err error) Finding {
	const about = "commands, permissions and what other nodes have agreed on"
	if err == nil {
		return fine(about, "as configured")
	}
	return Finding{Level: Problem, About: about, Found: err.Error(),
		Do: "a server with these settings does not start; change what the message names"}
}

// Redis judges a Redis server.
func Redis(s *redisstore.Server) []Finding {
	list := []Finding{latency(s), clock(s)}
	if s.Info == nil {
		list = append(list, Finding{Level: Warning, About: "INFO", Found: "this user may not ask",
			Do: "ACL SETUSER this user +info, or look at version, memory and persistence yourself"})
	} else {
		list = append(list, version(s), policy(s), memory(s), persistence(s), replicas(s))
	}
	for i := range list {
		list[i].About += " of " + s.Name
	}
	return list
}

// Bounds of normal values. A round trip is half the time of a request for a key that is not in
// memory. A node marks its answers when the clock of Redis is off by a second.
const (
	slowTrip  = 5 * time.Millisecond
	slowest   = 100 * time.Millisecond
	clockSkew = time.Second / 2
)

func fine(about, format string, args ...any) Finding {
	return Finding{Level: Fine, About: about, Found: fmt.Sprintf(format, args...)}
}

func latency(s *redisstore.Server) Finding {
	f := fine("latency", "%v at best, %v at worst", s.RTT.Round(time.Microsecond),
		s.Slowest.Round(time.Microsecond))
	if s.RTT > slowTrip || s.Slowest > slowest {
		f.Level, f.Do = Warning, "bring nodes and Redis closer together; look at SLOWLOG GET and "+
			"LATENCY DOCTOR for what keeps Redis busy"
	}
	return f
}

func clock(s *redisstore.Server) Finding {
	f := fine("clock", "%v ahead of this machine", s.Ahead.Round(time.Millisecond))
	if s.Ahead.Abs() > clockSkew {
		f.Level, f.Do = Warning, "run NTP on both machines; twotier follows the clock of Redis, "+
			"and marks its answers when it can't be believed"
	}
	return f
}

func version(s *redisstore.Server) Finding {
	name, text := "Redis", s.Info["redis_version"]
	if v := s.Info["valkey_version"]; v != "" {
		name, text = "Valkey", v
	}
	f := fine("version", "%s %s", name, text)
	if name == "Redis" && older(text, 6, 2) {
		f.Level, f.Do = Problem, "use 6.2 or later, which twotier needs"
	}
	return f
}

// older reports whether a version is before major.minor. A version that can't be parsed is not.
func older(text string, major, minor int) bool {
	parts := strings.Split(text, ".")
	if len(parts) < 2 {
		return false
	}
	a, err := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err == nil && err2 == nil && (a < major || a == major && b < minor)
}

func policy(s *redisstore.Server) Finding {
	is := s.Info["maxmemory_policy"]
	f := fine("eviction", "maxmemory-policy %s", is)
	if is != "noeviction" {
		f.Level, f.Do = Problem, "CONFIG SET maxmemory-policy noeviction, and in the file: when "+
			"memory is full, keys are dropped and counted from zero"
	}
	if n := s.InfoNumber("evicted_keys"); n > 0 {
		f.Found += fmt.Sprintf(", %d keys evicted so far", n)
	}
	return f
}

func memory(s *redisstore.Server) Finding {
	used, most := s.InfoNumber("used_memory"), s.InfoNumber("maxmemory")
	if most == 0 {
		return fine("memory", "%d MiB used, no maxmemory", used>>20)
	}
	f := fine("memory", "%d of %d MiB used", used>>20, most>>20)
	if used > most/5*4 {
		f.Level, f.Do = Problem, "raise maxmemory, or use Redis Cluster: when it is full, counts "+
			"wait in the memory of the nodes"
	}
	return f
}

func persistence(s *redisstore.Server) Finding {
	f := fine("persistence", "append-only file")
	switch {
	case s.Info["aof_enabled"] != "1":
		f.Level, f.Found = Warning, "no append-only file"
		f.Do = "CONFIG SET appendonly yes, and in the file: a Redis that crashes comes back with " +
			"what nodes still have in memory, and nothing else"
	case s.Info["aof_last_write_status"] == "err":
		f.Level, f.Found = Problem, "the append-only file can't be written"
		f.Do = "look at the log of Redis, and at its disk"
	}
	return f
}

func replicas(s *redisstore.Server) Finding {
	n := s.InfoNumber("connected_slaves")
	f := fine("replicas", "%d connected", n)
	if n == 0 {
		f.Level, f.Do = Warning, "add one: there is nothing to fail over to, and ack=replica is "+
			"refused"
	}
	return f
}

// Warnings returns a finding for each warning.
func Warnings(list []warning.Warning) (findings []Finding) {
	for _, w := range list {
		findings = append(findings, Finding{Level: Warning, Found: w.Reason, Do: w.Instead,
			About: fmt.Sprintf("%s (%s)", w.At, w.Code)})
	}
	return findings
}

// Nodes checks each gossip address of other nodes, and returns a finding for each: whether it can
// be reached within timeout over TCP, which gossip needs in addition to UDP.
func Nodes(ctx context.Context, addresses []string, timeout time.Duration) (list []Finding) {
	dialer := net.Dialer{Timeout: timeout}
	for _, address := range addresses {
		f := fine("node at "+address, "its gossip answers")
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			f.Level, f.Found = Problem, err.Error()
			f.Do = "start the node, or open its --gossip for TCP and UDP from here"
		} else {
			conn.Close()
		}
		list = append(list, f)
	}
	return list
}

// Join returns the finding about the addresses of --join, for a cluster with that many members. own
// are the gossip addresses of the node itself. All other nodes should be listed: a node that starts
// while Redis does not answer finds only the listed ones.
func Join(ctx context.Context, addresses, own []string, members int) Finding {
	others := map[string]bool{}
	for _, address := range addresses {
		for _, at := range resolve(ctx, address) {
			others[at] = true
		}
	}
	for _, address := range own {
		for _, at := range resolve(ctx, address) {
			delete(others, at)
		}
	}
	f := fine("--join", "lists the %d other nodes", members-1)
	if len(others) < members-1 {
		f.Level, f.Found = Warning, fmt.Sprintf("lists %d of %d other nodes", len(others),
			members-1)
		f.Do = "list the gossip addresses of all nodes, the same list on each: one that starts " +
			"while Redis does not answer, and the listed nodes are down, makes a cluster of its own"
	}
	return f
}

// resolve returns the addresses that a host:port stands for. An unspecified host stands for all
// addresses of this machine.
func resolve(ctx context.Context, address string) (list []string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		ips, err = localAddresses(), nil
	}
	if err != nil {
		ips = []string{host} // a name that is not known here may be known at the node
	}
	for _, ip := range ips {
		list = append(list, net.JoinHostPort(ip, port))
	}
	return list
}

// localAddresses returns the addresses of this machine's interfaces.
func localAddresses() (list []string) {
	all, _ := net.InterfaceAddrs() // none is as good as unknown ones
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			list = append(list, n.IP.String())
		}
	}
	return list
}
