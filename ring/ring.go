package ring

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Options configure a [Ring]. The zero value of a field means its default.
type Options struct {
	// ID is the node's name. It survives restarts. Required.
	ID string
	// Name identifies this process; no other process may ever have had it. Default: the ID and
	// random characters.
	Name string
	// Bind is the address for gossip (UDP and TCP), as host:port. Port 0 picks a free one. Default:
	// 127.0.0.1:7946.
	Bind string
	// Advertise is where others reach Bind, if that is another address.
	Advertise string
	// Join lists gossip addresses of other members, as host:port. Addresses that don't answer are
	// retried.
	Join []string
	// Listed returns further addresses to look for, which may change. Optional.
	Listed func() []string
	// Secret encrypts and authenticates the gossip, see also SetSecrets. Nodes with different
	// secrets don't form a cluster. Default: none.
	Secret []byte
	// Agreement holds the settings that all members must share. Required.
	Agreement Agreement
	// Tag is the initial argument of SetTag.
	Tag string
	// Zones is the version of the node's time-zone data, which it announces. At most 8 bytes.
	Zones string
	// RejoinInterval is how often the node looks for lost members, and for addresses in Join that
	// never answered. At first it does so more often. Default: 10 s.
	RejoinInterval time.Duration
	// OnChange is called with every new table, by one goroutine, except for the tables that Open
	// and Enter make for their callers. Optional.
	OnChange func(*Table)
	// Placements, if set, is shared with other rings of this process that see the same members.
	// Default: a separate cache.
	Placements *Placements
	// Transport replaces the network, for tests.
	Transport memberlist.Transport
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// Ring is this node's membership in the cluster. Make one with [New], start it with Open, stop it
// with Close.
type Ring struct {
	opt     Options
	born    int64
	table   atomic.Pointer[Table]
	tableMu sync.Mutex // held while a table is made
	list    *memberlist.Memberlist
	views   views
	secrets secrets

	metaMu sync.Mutex // never held during a call of memberlist
	meta   meta
	// announcing is held while memberlist is given a change: UpdateNode is not made for two callers
	// at once, and an older meta could get the higher incarnation. It is no mutex, as UpdateNode
	// waits.
	announcing chan struct{}
	host       string // of the gossip
	gossip     string // its address

	stop       context.CancelFunc
	rebuilding sync.WaitGroup
	done       sync.WaitGroup
	once       sync.Once
	err        error
}

// New checks the options and returns a ring that consists of this node alone until it is opened.
func New(opt Options) (*Ring, error) {
	if opt.ID == "" || len(opt.ID) > maxID {
		return nil, fmt.Errorf("ring: the ID is %q, want 1 to %d bytes", opt.ID, maxID)
	}
	if opt.Name == "" {
		opt.Name = opt.ID + "-" + rand.Text()[:8]
	}
	opt.Bind = cmp.Or(opt.Bind, "127.0.0.1:7946")
	opt.RejoinInterval = cmp.Or(opt.RejoinInterval, 10*time.Second)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if len(opt.Tag) > maxTag {
		return nil, fmt.Errorf("ring: a tag of %d bytes, want at most %d", len(opt.Tag), maxTag)
	}
	if len(opt.Zones) > maxZones {
		return nil, fmt.Errorf("ring: zones %q, want at most %d bytes", opt.Zones, maxZones)
	}
	opt.Placements = cmp.Or(opt.Placements, new(Placements))
	r := &Ring{opt: opt, born: time.Now().UnixMilli(), announcing: make(chan struct{}, 1)}
	r.views.init(opt)
	if len(opt.Secret) > 0 {
		r.secrets.list = [][]byte{opt.Secret}
	}
	r.meta = meta{
		Protocol: Protocol, Partitions: opt.Agreement.Partitions, Seed: opt.Agreement.Seed,
		Data: opt.Agreement.Data, ID: opt.ID, Born: r.born, Starting: true, Tag: opt.Tag,
		Zones: opt.Zones,
	}
	t, err := NewTable([]Member{{ID: opt.ID, Name: opt.Name, Born: r.born, Starting: true,
		Tag: opt.Tag, Zones: opt.Zones}}, opt.Name, opt.Agreement.Partitions, opt.Agreement.Seed)
	if err != nil {
		return nil, err
	}
	r.table.Store(t)
	return r, nil
}

// Name returns the name of this process.
func (r *Ring) Name() string { return r.opt.Name }

// Self returns this process as other nodes see it.
func (r *Ring) Self() Member {
	r.metaMu.Lock()
	defer r.metaMu.Unlock()
	host := cmp.Or(r.meta.Host, r.host)
	return Member{
		ID: r.opt.ID, Name: r.opt.Name, Address: net.JoinHostPort(host, strconv.Itoa(r.meta.Port)),
		Born:     r.born,
		Draining: r.meta.Draining, Starting: r.meta.Starting, Tag: r.meta.Tag,
		Zones: r.meta.Zones, Peer: r.meta.peer(host),
	}
}

// Twins returns other processes with this node's ID that are alive or not yet declared dead. It
// leaves out a younger one that is still starting, so that only one of two starting processes gives
// way.
func (r *Ring) Twins() (list []Member) {
	for _, m := range r.views.snapshot() {
		younger := m.Born > r.born || m.Born == r.born && m.Name > r.opt.Name
		if m.ID == r.opt.ID && m.Name != r.opt.Name && !(m.Starting && younger) {
			list = append(list, m)
		}
	}
	return list
}

// Table returns the current state of the cluster.
func (r *Ring) Table() *Table { return r.table.Load() }

// Open starts gossiping and joins the members named in Options.Join. Until Enter is called the node
// is a member that owns nothing, so that the caller can first find out whether another process has
// its ID. address is where this node serves HTTP; if its host is unspecified, the host of the
// gossip address is used.
//
// The error wraps [ErrRefused] if a reached member is configured differently, and [ErrNotJoined] if
// members run but don't let this node in. It is no error if members don't run yet, or don't answer
// for a while. If ctx ends while Open waits for them, its error is returned.
func (r *Ring) Open(ctx context.Context, address string) error {
	if r.stop != nil {
		return errors.New("ring: opened twice")
	}
	var err error
	if r.meta.Host, r.meta.Port, err = splitAddress(address, maxHost); err != nil {
		return fmt.Errorf("ring: address %w", err)
	}
	cfg, err := r.memberlistConfig()
	if err != nil {
		return err
	}
	if err := listen(cfg); err != nil {
		return fmt.Errorf("gossip on %s: %w", r.opt.Bind, err)
	}
	list, err := memberlist.Create(cfg)
	if err != nil {
		if r.opt.Transport == nil {
			_ = cfg.Transport.Shutdown()
		}
		return fmt.Errorf("gossip on %s: %w", r.opt.Bind, err)
	}
	r.list = list
	r.metaMu.Lock()
	r.host, r.gossip = list.LocalNode().Addr.String(), list.LocalNode().Address()
	r.metaMu.Unlock()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	err = r.join(ctx, r.opt.Join)
	r.rebuild()
	r.rebuilding.Go(func() { r.runRebuild(run) })
	r.done.Go(func() { r.runRejoin(run) })
	return err
}

// SetPeerAddress announces a separate address for messages from other nodes, and whether it expects
// TLS. An empty address means the address for everyone; an unspecified host means the gossip's
// host. Call it before Open.
func (r *Ring) SetPeerAddress(address string, secure bool) error {
	r.meta.Secure = secure
	if address == "" {
		return nil
	}
	var err error
	if r.meta.PeerHost, r.meta.PeerPort, err = splitAddress(address, maxPeerHost); err != nil {
		return fmt.Errorf("ring: peer address %w", err)
	}
	return nil
}

// splitAddress splits a host:port; the host is empty if it is unspecified.
func splitAddress(address string, most int) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q: %w", address, err)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q: want a port", address)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	if len(host) > most {
		return "", 0, fmt.Errorf("%q: the host is longer than %d bytes", address, most)
	}
	return host, port, nil
}

// memberlistConfig returns memberlist's configuration for a local network, with our names, keys and
// delegates.
func (r *Ring) memberlistConfig() (*memberlist.Config, error) {
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = r.opt.Name
	cfg.Logger = newLog(r.opt.Logger)
	cfg.Delegate, cfg.Events, cfg.Alive, cfg.Merge = delegate{r}, &r.views, &r.views, &r.views
	cfg.Transport = r.opt.Transport
	// Announcements fit in a packet anyway.
	cfg.EnableCompression = false
	// Exchanging state with a host that swallows everything delays the search for other members.
	cfg.TCPTimeout = 3 * time.Second
	// A suspect has at most this many times the shortest time (four seconds) to answer, and less
	// for every other node that suspects it too. As soon as memberlist knows of four nodes it
	// expects two others to agree, and it counts nodes that died within the last half minute. In a
	// cluster of three with one node just restarted there is only one other, and by default a crash
	// took 14 s to be noticed.
	cfg.SuspicionMaxTimeoutMult = 2
	var err error
	if cfg.BindAddr, cfg.BindPort, err = hostPort(r.opt.Bind); err != nil {
		return nil, fmt.Errorf("ring: gossip address %q: %w", r.opt.Bind, err)
	}
	cfg.AdvertisePort = cfg.BindPort
	if r.opt.Advertise != "" {
		if cfg.AdvertiseAddr, cfg.AdvertisePort, err = hostPort(r.opt.Advertise); err != nil {
			return nil, fmt.Errorf("ring: advertised address %q: %w", r.opt.Advertise, err)
		}
	}
	cfg.Keyring, err = r.secrets.keyring()
	return cfg, err
}

func hostPort(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("want a port, got %q", port)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, n, nil
}

// Gossip returns the address at which others reach this node's gossip, "" before Open.
func (r *Ring) Gossip() string {
	r.metaMu.Lock()
	defer r.metaMu.Unlock()
	return r.gossip
}

// Enter announces that this node may own partitions. It returns once all reachable members know, or
// ctx is done.
func (r *Ring) Enter(ctx context.Context) {
	r.announce(ctx, func(m *meta) { m.Starting = false })
	r.rebuild()
}

// Drain announces that this node is about to leave: from then on it owns nothing, but stays a
// member to hand over its partitions. It returns once all reachable members know, or ctx is done.
func (r *Ring) Drain(ctx context.Context) {
	r.announce(ctx, func(m *meta) { m.Draining = true })
}

// SetTag announces a text of at most 64 bytes, which becomes part of this node's Member. It returns
// once all reachable members know, or ctx is done. The error is about a longer text.
func (r *Ring) SetTag(ctx context.Context, tag string) error {
	if len(tag) > maxTag {
		return fmt.Errorf("ring: a tag of %d bytes, want at most %d", len(tag), maxTag)
	}
	r.announce(ctx, func(m *meta) { m.Tag = tag })
	return nil
}

// announce changes this node's announcement and sends it to every reachable member directly. Gossip
// would take longer, and the more so the more other news there is.
func (r *Ring) announce(ctx context.Context, change func(*meta)) {
	r.metaMu.Lock()
	change(&r.meta)
	r.meta.Change++
	r.metaMu.Unlock()
	if r.list == nil {
		return
	}
	r.announcing <- struct{}{}
	_ = r.list.UpdateNode(time.Nanosecond)
	<-r.announcing
	r.sendToAll(ctx)
}

// Abandon stops gossiping without an announcement, as if the process had died: the other members
// find out when this node does not answer. Close then does nothing.
func (r *Ring) Abandon() error {
	r.once.Do(func() {
		if r.stop == nil {
			return
		}
		r.stop()
		r.rebuilding.Wait()
		r.err = r.list.Shutdown()
		r.done.Wait()
	})
	return r.err
}

// leaveTimeout bounds how long the announcement that this node leaves may take.
const leaveTimeout = time.Second

// Close leaves the cluster and stops gossiping. It may be called twice. memberlist's last
// goroutines end a few seconds later.
func (r *Ring) Close(ctx context.Context) error {
	r.once.Do(func() {
		if r.stop == nil {
			return
		}
		r.stop()
		r.rebuilding.Wait() // a table without this node is not its own
		wait := leaveTimeout
		if by, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(by)), time.Millisecond)
		}
		if err := r.list.Leave(wait); err != nil {
			// The other members, if any, find out when it does not answer.
			r.opt.Logger.Debug("could not announce that this node left", "error", err)
		}
		r.err = r.list.Shutdown()
		r.done.Wait()
	})
	return r.err
}
