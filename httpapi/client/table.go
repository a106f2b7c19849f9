package client

import (
	"encoding/json"
	"errors"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// table is one state of the cluster, as reported by a node. It is immutable.
type table struct {
	version  uint64
	seed     uint64
	hashTags map[string]bool // by namespace; a missing one is like the default namespace
	owners   []uint16        // by partition, an index into members; empty if any node will do
	members  []member
}

type member struct {
	address string // empty if it can't be reached directly
	leaving bool
}

// Bounds of an accepted table.
const (
	maxPartitions = 1 << 16 // as on the servers
	maxMembers    = 1 << 12
	maxNamespaces = 1 << 12
)

// errTable is the error of a node's report about the cluster that is inconsistent.
var errTable = errors.New("the table of owners is malformed")

// readTable parses the table that the node at an address reported.
func readTable(b []byte, address string) (*table, error) {
	var raw struct {
		Mode       string
		Version    uint64 `json:"ring_version"`
		Partitions int
		Seed       *uint64         `json:"hash_seed"`
		HashTags   map[string]bool `json:"hash_tags"`
		Owners     []uint16
		Members    []struct {
			Address, State string
			Self           bool
		}
	}
	if hasMoreValues(b, maxPartitions+64*maxMembers+maxNamespaces) ||
		json.Unmarshal(b, &raw) != nil || len(raw.Members) == 0 || len(raw.Members) > maxMembers {
		return nil, errTable
	}
	t := &table{version: raw.Version, hashTags: raw.HashTags}
	for _, m := range raw.Members {
		at := reachable(m.Address, address, m.Self)
		t.members = append(t.members, member{at, m.State != "alive"})
	}
	// Without owners, Redis decides, or the node does not know the owners.
	if raw.Mode != "two-tier" || len(raw.Owners) == 0 || raw.Seed == nil {
		return t, nil
	}
	t.owners, t.seed = raw.Owners, *raw.Seed
	if len(t.owners) != raw.Partitions || int(slices.Max(t.owners)) >= len(t.members) {
		return nil, errTable
	}
	return t, nil
}

// reachable returns the address to reach a member at, or none if the member did not give one. If
// the reporting node listens on all addresses of its machine, its address is the one that the
// client called.
func reachable(address, at string, self bool) string {
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	unspecified := err != nil || host == "" || notIP == nil && ip.IsUnspecified()
	switch {
	case unspecified && self:
		return at
	case unspecified:
		return ""
	}
	return address
}

// none is the index of no member.
const none = -1

// owner returns the index of the member that owns a key, or none.
func (t *table) owner(ns, key string) int {
	if t == nil || len(t.owners) == 0 {
		return none
	}
	return int(t.owners[t.partition(ns, key)])
}

// partition computes the same as the servers: xxHash64 of the key and, unless it is the default
// one, of its namespace, mixed by the finalizer of MurmurHash3.
func (t *table) partition(ns, key string) int {
	if len(t.hashTags) > 0 {
		ns, key = t.placementKey(ns, key)
	}
	h := xxhash.Sum64String(key) ^ t.seed
	if ns != "" && ns != defaultNamespace {
		h += bits.RotateLeft64(xxhash.Sum64String(ns), 31)
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	hi, _ := bits.Mul64(h, uint64(len(t.owners)))
	return int(hi)
}

const defaultNamespace = "default"

// placementKey returns the namespace and text that place a key: its own or, if it has a hash tag
// and its namespace uses them, the default namespace and the tag.
func (t *table) placementKey(ns, key string) (string, string) {
	tagged, listed := t.hashTags[ns]
	if !listed {
		tagged = t.hashTags[defaultNamespace]
	}
	_, after, _ := strings.Cut(key, "{")
	if tag, _, ok := strings.Cut(after, "}"); tagged && ok && tag != "" {
		return "", tag
	}
	return ns, key
}
