package client

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxGates bounds how many kinds of gates are compared.
const maxGates = 1000

// gates has the gates of this process.
var gates gateLimits

// gateLimits holds the limits of gates by what identifies their counts: servers, namespace, name.
type gateLimits struct {
	mu     sync.Mutex
	limits map[string]string
}

// shares reports whether a gate shares its counts with an earlier one that has other limits.
func (g *gateLimits) shares(o *GateOptions) bool {
	of := strings.Join(append(slices.Sorted(slices.Values(o.Client.opt.Addresses)),
		cmp.Or(o.Namespace, "default"), o.Name), "\n")
	var all []string
	for _, l := range o.Limits {
		all = append(all, fmt.Sprintf("%+v", l))
	}
	slices.Sort(all)
	limits := strings.Join(append(all, o.Rules...), "\n")
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.limits[of]
	if !ok && len(g.limits) < maxGates {
		if g.limits == nil {
			g.limits = map[string]string{}
		}
		g.limits[of] = limits
	}
	return ok && known != limits
}

// isName reports whether a text can be the name of a gate, or is empty.
func isName(text string) bool {
	return len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		letter := r|0x20 >= 'a' && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}
