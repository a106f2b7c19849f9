package ring

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
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
