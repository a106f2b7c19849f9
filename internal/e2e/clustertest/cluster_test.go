package clustertest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

var (
	longFlag  = flag.Bool("long", false, "run what takes minutes, too")
	curveFlag = flag.Bool("curve", false,
		"measure all points of the curve of the excess across a split (minutes)")
	runsFlag = flag.Int("runs", 1, "how often to measure how long failures take to be noticed")
)

// program is the program under test. It has no race detector: other tests run it with that, and
// these tests are about the behaviour of processes.
var program = proctest.NewProgram()

// labs is the number of labs made so far.
var labs atomic.Int32

// takesLong skips a test that takes the processors half a minute or more, unless -long is set.
func takesLong(t *testing.T) {
	t.Helper()
	if !*longFlag {
		t.Skip("takes long: make long runs it, with -long")
	}
}

func TestMain(m *testing.M) { proctest.Main(m, program, 6) }

// cluster adds the questions of this package's tests to several nodes over one Redis.
type cluster struct{ *proctest.Cluster }

// start starts a Redis and n nodes on loopback, in parallel to other tests.
func start(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	t.Parallel()
	return startOver(t, redistest.Start(t), n, args...)
}

// startOver starts n nodes over a Redis and waits until they are one cluster.
func startOver(t *testing.T, r proctest.Redis, n int, args ...string) *cluster {
	t.Helper()
	c := newCluster(t, r, args...)
	c.Grow(n)
	return c
}

// startAgain ends all nodes, by Kill or Stop, and starts n.
func (c *cluster) startAgain(end func(int), n int) {
	c.T.Helper()
	for _, i := range c.Running() {
		end(i)
	}
	for i := range n {
		c.Serve(i)
	}
	c.Settled()
}

// flushed waits until no node has unflushed counts.
func (c *cluster) flushed() {
	c.T.Helper()
	for _, node := range c.Nodes {
		node.Flushed()
	}
}

// seeRedis waits until all nodes see Redis up.
func (c *cluster) seeRedis() {
	c.T.Helper()
	for _, node := range c.Nodes {
		proctest.Until(c.T, "Redis is up", func() bool {
			return node.Metric("twotier_redis_up", "") == 1
		})
	}
}

// modeOf changes how the cluster counts.
func (c *cluster) modeOf(i int, mode string) {
	c.T.Helper()
	if status, text, _ := admin(c.T, c.Nodes[i], "POST", "/v1/admin/mode",
		fmt.Sprintf(`{"mode":%q}`, mode)); status != 200 {
		c.T.Fatalf("mode %s: %d %s", mode, status, text)
	}
}

// newCluster returns a cluster without nodes over a Redis, on loopback. A single server expires
// buckets in the best way that it has.
func newCluster(t *testing.T, r proctest.Redis, args ...string) *cluster {
	t.Helper()
	if server, ok := r.(*redistest.Server); ok {
		args = append([]string{"--redis-expiry", redistest.Expiry(t, server)}, args...)
	}
	return &cluster{proctest.NewCluster(t, program, r, proctest.Loopback(), args...)}
}

// The addresses within a lab's network of 256 addresses. Clients are on the bridge and always reach
// every host.
const (
	clientHost = 1
	redisHost  = 5
	firstNode  = 10
	httpPort   = 8080
	gossipPort = 7946
)

// lab is a set of network namespaces connected by a bridge: one for Redis and one for each node.
// nftables inside each namespace decides which packets to drop.
type lab struct {
	t    *testing.T
	name string // the prefix of the names of namespaces and interfaces
	net  string // the first three bytes of all addresses
}

// labName matches the names of labs: the id of the process that made the lab, and letters.
var labName = regexp.MustCompile(`^tw(\d+)x[a-z]+$`)

// newLab makes a lab for n nodes, or skips the test if that isn't possible.
func newLab(t *testing.T, n int) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces: need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("network namespaces: no command %s", tool)
		}
	}
	sweep()
	serial := int(labs.Add(1))
	l := &lab{t: t, name: fmt.Sprintf("tw%dx%c%c", os.Getpid(), 'a'+serial/26%26, 'a'+serial%26)}
	t.Cleanup(l.remove)
	if err := l.make(n, os.Getpid()*32+serial); err != nil {
		if unable := regexp.MustCompile(
			"(?i)not permitted|not supported|denied"); unable.MatchString(err.Error()) {
			t.Skipf("network namespaces: not possible here: %v", err)
		}
		t.Fatal(err)
	}
	return l
}

// command runs a command and returns its output.
func command(stdin string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// sweep removes the leftovers of processes that have ended.
func sweep() {
	list, _ := command("", "ip", "netns", "list") // if listing fails, nothing can be removed
	for line := range strings.Lines(list) {
		name, host, _ := strings.Cut(strings.Fields(line)[0], "-")
		m := labName.FindStringSubmatch(name)
		if m == nil || host == "" {
			continue
		}
		if _, err := os.Stat("/proc/" + m[1]); errors.Is(err, os.ErrNotExist) {
			_, _ = command("", "ip", "link", "del", name+host)
			_, _ = command("", "ip", "netns", "del", name+"-"+host)
			_, _ = command("", "ip", "link", "del", name)
		}
	}
}

func (l *lab) hosts(n int) []int {
	hosts := []int{redisHost}
	for i := range n {
		hosts = append(hosts, firstNode+i)
	}
	return hosts
}

// make makes the bridge and a namespace for every host. Addresses are from the range for benchmarks
// (RFC 2544): the first free network, starting at a place that no other lab of this process starts
// at.
func (l *lab) make(n, place int) error {
	used, err := command("", "ip", "-4", "route", "show", "table", "all")
	if err != nil {
		return err
	}
	for ; l.net == "" || strings.Contains(used, l.net); place += 61 {
		l.net = fmt.Sprintf("198.%d.%d.", 18+place/256%2, place%256)
	}
	errs := []error{l.ip("link", "add", l.name, "type", "bridge"),
		l.ip("addr", "add", l.addr(clientHost)+"/24", "dev", l.name),
		l.ip("link", "set", l.name, "up")}
	for _, host := range l.hosts(n) {
		space, outer := l.space(host), l.name+strconv.Itoa(host)
		errs = append(errs, l.ip("netns", "add", space),
			l.ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space),
			l.ip("link", "set", outer, "master", l.name, "up"),
			l.ip("-n", space, "addr", "add", l.addr(host)+"/24", "dev", "eth0"),
			l.ip("-n", space, "link", "set", "lo", "up"),
			l.ip("-n", space, "link", "set", "eth0", "up"), l.try(host))
	}
	return errors.Join(errs...)
}

func (l *lab) ip(args ...string) error {
	_, err := command("", append([]string{"ip"}, args...)...)
	return err
}

// remove removes everything that make has made, even if make failed halfway.
func (l *lab) remove() {
	for _, host := range l.hosts(20) {
		if _, err := os.Stat("/run/netns/" + l.space(host)); err == nil {
			// The kernel keeps a namespace while a connection of a dead process lingers in it, so
			// remove its link first.
			_ = l.ip("link", "del", l.name+strconv.Itoa(host))
			if err := l.ip("netns", "del", l.space(host)); err != nil {
				l.t.Error(err)
			}
		}
	}
	_ = l.ip("link", "del", l.name) // it may not exist
}

func (l *lab) addr(host int) string  { return l.net + strconv.Itoa(host) }
func (l *lab) space(host int) string { return fmt.Sprintf("%s-%d", l.name, host) }

func (l *lab) within(host int) []string { return []string{"ip", "netns", "exec", l.space(host)} }

// try sets the nftables rules by which a host drops packets.
func (l *lab) try(host int, rules ...string) error {
	script := "flush ruleset\ntable inet lab {\nchain in {\ntype filter hook input priority 0; " +
		"policy accept;\n" +
		strings.Join(rules, "\n") + "\n}\n}\n"
	_, err := command(script, append(l.within(host), "nft", "-f", "-")...)
	return err
}

// rule is try for node i, and ends the test if it fails.
func (l *lab) rule(i int, rules ...string) {
	l.t.Helper()
	must.Succeed(l.t, l.try(firstNode+i, rules...))
}

// from returns a rule for packets from these nodes.
func (l *lab) from(rest string, nodes ...int) string {
	var list []string
	for _, i := range nodes {
		list = append(list, l.addr(firstNode+i))
	}
	return "ip saddr {" + strings.Join(list, ",") + "} " + rest
}

// part lets nodes receive packets only from nodes of the same group.
func (l *lab) part(groups ...[]int) {
	l.t.Helper()
	for g, group := range groups {
		var others []int
		for o, other := range groups {
			if o != g {
				others = append(others, other...)
			}
		}
		for _, i := range group {
			l.rule(i, l.from("drop", others...))
		}
	}
}

// heal removes the rules of all hosts.
func (l *lab) heal(n int) {
	l.t.Helper()
	for i := range n {
		l.rule(i)
	}
}

// startLab starts a Redis and n nodes, each in a separate network namespace.
func startLab(t *testing.T, n int, args ...string) (*cluster, *lab) {
	t.Helper()
	t.Parallel()
	l := newLab(t, n)
	server := redistest.Start(t, redistest.Within(l.addr(redisHost), l.within(redisHost)...))
	at := func(i int) proctest.Place {
		host := firstNode + i
		return proctest.Place{
			Options: proctest.Options{Listen: fmt.Sprintf("%s:%d", l.addr(host), httpPort),
				Within: l.within(host)},
			Gossip: fmt.Sprintf("%s:%d", l.addr(host), gossipPort),
		}
	}
	c := &cluster{proctest.NewCluster(t, program, server, at,
		append([]string{"--insecure", "--cluster-secret", "a secret of the nodes"}, args...)...)}
	c.Grow(n)
	return c, l
}
