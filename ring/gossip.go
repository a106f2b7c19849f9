package ring

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate gives memberlist this node's announcement.
type delegate struct{ r *Ring }

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(int) []byte {
	d.r.metaMu.Lock()
	defer d.r.metaMu.Unlock()
	return d.r.meta.encode()
}

// NotifyMsg implements memberlist.Delegate. It receives the messages of inform.
func (d delegate) NotifyMsg(b []byte) {
	var m message
	if json.Unmarshal(b, &m) == nil && m.Name != d.r.opt.Name {
		d.r.views.applyAnnouncement(stranger{m, true})
	}
}

// GetBroadcasts implements memberlist.Delegate.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (d delegate) LocalState(bool) []byte { return d.r.views.encodeMessages() }

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState(b []byte, _ bool) { d.r.views.applyMessages(b) }

const (
	// informTimeout bounds how long members may take to learn of a change.
	informTimeout = time.Second
	// informFully is the number of members with which a node exchanges all state at a change.
	informFully = 4
)

// sendToAll sends this node's announcement to all members. With gossip alone, one member
// occasionally learns of a change only after up to half a minute: about one time in three hundred
// among five nodes. The node exchanges all state with a few members, from which it also receives
// changes that it has missed. The others receive only the announcement: all state would be n times
// as much for each of n members.
func (r *Ring) sendToAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, informTimeout)
	defer cancel()
	list := r.views.addresses(r.opt.Name)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	few := list[:min(informFully, len(list))]
	exchanged, told := r.exchangeWithAll(ctx, few), each(ctx, list[len(few):], 0, r.newSender())
	for range list {
		select {
		case <-exchanged: // an unreachable member learns it from others
		case <-told:
		case <-ctx.Done():
			return
		}
	}
}

// newSender returns a function that sends this node's announcement to the member at an address.
func (r *Ring) newSender() func(address string) error {
	r.metaMu.Lock()
	m := message{Name: r.opt.Name, Gossip: r.gossip, Meta: r.meta.encode()}
	r.metaMu.Unlock()
	text, _ := json.Marshal(&m) // strings and JSON always marshal
	return func(address string) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return r.list.SendReliable(
			&memberlist.Node{Addr: at.Addr().AsSlice(), Port: at.Port()}, text)
	}
}

// Errors of membership.
var (
	// ErrRefused means that a node can't join the cluster because it is configured differently.
	ErrRefused = errors.New("refused")
	// ErrNotJoined means that no member of the cluster could be reached.
	ErrNotJoined = errors.New("no member could be reached")
)

// Agreement holds the settings that all members must share, apart from the protocol version.
type Agreement struct {
	// Partitions is the number of partitions, and Seed the seed of the hash.
	Partitions int
	Seed       uint64
	// Data is a digest of everything else that must be the same: hash tags, the prefix in Redis.
	Data uint64
}

// meta is a node's announcement of itself, in at most memberlist.MetaMaxSize (512) bytes.
type meta struct {
	Protocol   int    `json:"v"`
	Partitions int    `json:"p"`
	Seed       uint64 `json:"s,omitempty"`
	Data       uint64 `json:"d,omitempty"`
	ID         string `json:"i"`
	Host       string `json:"h,omitempty"` // empty: the host of the gossip
	Port       int    `json:"a"`
	Born       int64  `json:"b"`
	Draining   bool   `json:"l,omitempty"`
	Starting   bool   `json:"n,omitempty"`
	Tag        string `json:"t,omitempty"`
	PeerHost   string `json:"g,omitempty"` // empty: Host
	PeerPort   int    `json:"q,omitempty"` // 0: Port
	Secure     bool   `json:"e,omitempty"` // messages from other nodes use TLS
	Zones      string `json:"z,omitempty"` // the version of its time-zone data
	Change     uint64 `json:"c,omitempty"` // how often the process has changed its announcement
}

// Bounds of the metadata.
const (
	maxID    = 64
	maxTag   = 64
	maxZones = 8
	maxHost  = 128
	// maxPeerHost leaves room for the longest values of all other fields.
	maxPeerHost = 96
)

func (m *meta) encode() []byte {
	b, _ := json.Marshal(m) // a struct of strings and numbers always marshals
	return b
}

// peer returns Member.Peer of the node, given its host.
func (m *meta) peer(host string) string {
	if m.PeerPort == 0 && !m.Secure {
		return ""
	}
	address := net.JoinHostPort(cmp.Or(m.PeerHost, host), strconv.Itoa(cmp.Or(m.PeerPort, m.Port)))
	if m.Secure {
		return "https://" + address
	}
	return address
}

// announcement is a member's last announcement, with its number.
type announcement struct {
	Member
	change uint64
}

// decode reads the announcement of another node. It returns an error if that node does not agree
// with ours.
func decode(n *memberlist.Node, want Agreement) (announcement, error) {
	var m meta
	if err := json.Unmarshal(n.Meta, &m); err != nil {
		return announcement{}, fmt.Errorf("%w: %s at %s is not a twotier node", ErrRefused, n.Name,
			n.Address())
	}
	member := announcement{Member{ID: m.ID, Name: n.Name, Born: m.Born, Draining: m.Draining,
		Starting: m.Starting, Tag: m.Tag, Zones: m.Zones}, m.Change}
	host := cmp.Or(m.Host, n.Addr.String())
	member.Address = net.JoinHostPort(host, strconv.Itoa(m.Port))
	member.Peer = m.peer(host)
	where := fmt.Sprintf("node %s at %s", m.ID, n.Address())
	switch {
	case m.Protocol != Protocol:
		return member, fmt.Errorf("%w: %s speaks protocol %d, this node %d", ErrRefused, where,
			m.Protocol, Protocol)
	case m.Partitions != want.Partitions:
		return member, fmt.Errorf("%w: %s has %d partitions, this node %d", ErrRefused, where,
			m.Partitions, want.Partitions)
	case m.Data != want.Data: // before the seed, which differs along with the prefix
		return member, fmt.Errorf("%w: %s has different hash tags or another --redis-prefix",
			ErrRefused, where)
	case m.Seed != want.Seed:
		return member, fmt.Errorf("%w: %s has a different hash seed", ErrRefused, where)
	}
	return member, nil
}

// runRebuild makes a new table whenever the members change.
func (r *Ring) runRebuild(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.views.signal:
			if t := r.rebuild(); t != nil && r.opt.OnChange != nil {
				r.opt.OnChange(t)
			}
		}
	}
}

// rebuild makes the table of the current members. It returns nil if nothing changed. It holds a
// lock because, of two concurrent rebuilds, the one that saw the members first must not be the last
// to store a table.
func (r *Ring) rebuild() *Table {
	r.tableMu.Lock()
	defer r.tableMu.Unlock()
	members := r.views.snapshot()
	old := r.table.Load()
	t, err := newTable(members, r.opt.Name, r.opt.Agreement.Partitions, r.opt.Agreement.Seed,
		r.opt.Placements)
	if err != nil {
		r.opt.Logger.Error("can't compute a new table of owners: keeping the old one", "error", err)
		return nil
	}
	if t.version == old.version && slices.Equal(t.members, old.members) {
		return nil
	}
	r.table.Store(t)
	r.logChange(old, t)
	return t
}

// logChange logs the members that joined, left, or are about to leave.
func (r *Ring) logChange(old, t *Table) {
	for i := range t.members {
		m := &t.members[i]
		switch at := old.Find(m.Name); {
		case m.Name == r.opt.Name:
			if at >= 0 && m.Draining && !old.members[at].Draining {
				r.opt.Logger.Info("draining")
			}
		case at < 0:
			r.opt.Logger.Info("member joined", "member", m.ID, "address", m.Address, "members",
				t.Len())
		case m.Draining && !old.members[at].Draining:
			r.opt.Logger.Info("member is draining", "member", m.ID)
		}
	}
	for i := range old.members {
		if m := &old.members[i]; m.Name != r.opt.Name && t.Find(m.Name) < 0 {
			r.opt.Logger.Info("member gone", "member", m.ID, "address", m.Address, "members",
				t.Len())
		}
	}
	if at := old.Self(); at >= 0 && t.Self() < 0 && !old.members[at].Starting {
		r.opt.Logger.Error("another process has this node's ID and is younger: this one owns "+
			"nothing any more", "node", r.opt.ID)
	}
}

// runRejoin looks for missing members for as long as the node lives, and contacts strangers that
// gossip has not reported. memberlist itself gives up on dead nodes after half a minute, which
// would keep two halves of a split cluster apart forever.
func (r *Ring) runRejoin(ctx context.Context) {
	wait := r.opt.RejoinInterval / soonest
	timer := time.NewTimer(jitter(wait))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			missing := r.views.missingAddresses(ctx, r.seeds())
			results := r.exchangeWithAll(ctx, missing)
			for range missing {
				<-results // unreachable members are tried again
			}
			wait = min(2*wait, r.opt.RejoinInterval)
			timer.Reset(jitter(wait))
		case s := <-r.views.strangers:
			// An exchange of state makes it a member like all others.
			<-r.exchangeWithAll(ctx, []string{s.Gossip})
			r.views.forgetStranger(s.Name)
		}
	}
}

// seeds returns the addresses to look for, apart from those of lost members.
func (r *Ring) seeds() []string {
	if r.opt.Listed == nil {
		return r.opt.Join
	}
	return slices.Concat(r.opt.Join, r.opt.Listed())
}

// soonest is how much more often a new node looks for missing members at first: nodes that start at
// the same time each believe they are the first.
const soonest = 32

// jitter returns d plus or minus up to a quarter, so that nodes don't retry in lockstep.
func jitter(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }

// exchangeWithAll exchanges state with the members at these addresses, several at a time, and sends
// the result of each.
func (r *Ring) exchangeWithAll(ctx context.Context, addresses []string) <-chan error {
	return each(ctx, addresses, 0, r.exchange)
}

func (r *Ring) exchange(address string) error {
	_, err := r.list.Join([]string{address})
	return err
}

// each calls fn for each address, several at a time, with at least apart between the starts, and
// sends the results. Addresses that have not had their turn when ctx is done are skipped: a silent
// one takes some seconds.
func each(
	ctx context.Context, addresses []string, apart time.Duration, fn func(address string) error,
) <-chan error {
	results := make(chan error, len(addresses))
	slots := make(chan struct{}, reachAtOnce)
	for i, address := range addresses {
		go func() {
			if wait := time.Duration(i) * apart; wait > 0 {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				results <- ctx.Err()
				return
			}
			err := fn(address)
			<-slots
			results <- err
		}()
	}
	return results
}

// reachAtOnce is how many members are contacted concurrently.
const reachAtOnce = 32

// newLog returns a logger for memberlist that writes to ours. An error in memberlist's log is one
// lost message, which memberlist is built to handle. So everything is logged at the lowest level;
// the ring itself logs changes of state.
func newLog(to *slog.Logger) *log.Logger { return log.New(logWriter{to}, "", 0) }

type logWriter struct{ to *slog.Logger }

// Write logs one line.
func (w logWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	level := slog.LevelDebug
	if bytes.HasPrefix(text, []byte("[ERR]")) || bytes.HasPrefix(text, []byte("[WARN]")) {
		level = slog.LevelDebug + 1
	}
	if _, rest, ok := bytes.Cut(text, []byte("] memberlist: ")); ok {
		text = rest
	}
	w.to.Log(context.Background(), level, "gossip: "+string(text))
	return len(line), nil
}
