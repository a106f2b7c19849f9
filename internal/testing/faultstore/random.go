package faultstore

import (
	"math/rand/v2"

	"twotier.dev/twotier/syncer"
)

// Mix is the probability of each fault, in thousandths. The rest is None.
type Mix struct {
	ReplyLost, RequestLost, Refused, Late, Hang, KeyRefused int
}

// Random returns a function for Options.Decide that draws from the mix. The same seed and number of
// rounds give the same faults.
func Random(seed uint64, mix Mix) func(*syncer.Round) Fault {
	rnd := rand.New(rand.NewPCG(seed, 0xfa17))
	return func(*syncer.Round) Fault {
		n := rnd.IntN(1000)
		for fault, share := range [...]int{
			ReplyLost: mix.ReplyLost, RequestLost: mix.RequestLost, Refused: mix.Refused,
			Late: mix.Late,
			Hang: mix.Hang, KeyRefused: mix.KeyRefused,
		} {
			if n -= share; n < 0 {
				return Fault(fault)
			}
		}
		return None
	}
}
