package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// CompanionLadders returns the ladders of companions by their namespaces. Their events lie ahead,
// so they keep their milliseconds.
func CompanionLadders() map[string]*leaparray.Ladder {
	ladders := map[string]*leaparray.Ladder{}
	for name, span := range twotier.CompanionNamespaces() {
		l, err := leaparray.NewLadder(leaparray.DefaultExact,
			leaparray.Level{Width: time.Minute, Count: int(span / time.Minute)})
		if err != nil {
			panic(err) // impossible with constant levels
		}
		ladders[name] = l
	}
	return ladders
}
