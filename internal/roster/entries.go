package roster

import (
	"strings"
	"time"
)

// sightings holds, for each listed process that is not a member, when its entry was to run out as
// it was first seen.
type sightings map[string]int64

// strangers returns the listed processes that have renewed their entries for [strangerAfter]
// without being members, given all that are not. A process that counts in the store alone regards
// only owners of keys as strangers.
func (s sightings) strangers(inStore bool, unmet []Entry) (list []Entry) {
	seen := make(map[string]bool, len(unmet))
	for _, e := range unmet {
		if inStore && e.InStore {
			continue
		}
		seen[e.Name] = true
		first, ok := s[e.Name]
		switch {
		case !ok:
			s[e.Name] = e.Until
		case e.Until-first >= strangerAfter.Milliseconds():
			list = append(list, e)
		}
	}
	for name := range s {
		if !seen[name] {
			delete(s, name)
		}
	}
	return list
}

// gossips returns the addresses for gossip of those processes that have one.
func gossips(list []Entry) (addresses []string) {
	for i := range list {
		if list[i].Gossip != "" {
			addresses = append(addresses, list[i].Gossip)
		}
	}
	return addresses
}

// describe names processes for the log.
func describe(list []Entry) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].String()
	}
	return strings.Join(names, ", ")
}

// lastEnd returns how long it takes until all entries have run out.
func lastEnd(list []Entry) (left time.Duration) {
	for i := range list {
		left = max(left, list[i].Left)
	}
	return left
}
