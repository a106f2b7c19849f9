package nearest

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// Of returns the candidate closest to a mistyped name, or "" if none is close: at most one typo per
// three letters of the candidate is allowed. A name that is the beginning of a candidate counts as
// one typo.
func Of(name string, candidates []string) string {
	best, least := "", len(name)+1
	for _, c := range candidates {
		d := levenshtein.ComputeDistance(name, c)
		if len(name) > 1 && strings.HasPrefix(c, name) {
			d = 1
		}
		if d < least && d <= (len(c)+1)/3 {
			best, least = c, d
		}
	}
	return best
}
