package syncer_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/seed"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the models with this seed only")
	seedsFlag = flag.Int("seeds", 300, "number of seeds that the models run")
)

// failedOnce are seeds with which TestModel found faults: a key refused in a round whose reply was
// lost; keys whose time to live was thought to be set when it was not; a key reset while a loss was
// being restored; a loss that was not noticed in time; counts restored again after the store had
// forgotten that they were restored; a refused key with nothing pending when the next try failed.
var failedOnce = []uint64{
	173452457145, 599638486586, 671909714238, 735905695233, 336603127425, 1075560856286,
	22368853002,
	151805063199, 997046049611, 272404572680, 417045912440, 280118909901, 26576128707,
}

// eachSeed runs a model in virtual time with consecutive seeds and with the given ones, or only
// with the one of -seed.
func eachSeed(t *testing.T, most int, run func(t *testing.T, seed uint64), given ...uint64) {
	seeds := given
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	} else {
		first := seed.First()
		for i := range runs(most) {
			seeds = append(seeds, first+uint64(i))
		}
	}
	for _, seed := range seeds {
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, seed) })
		}) {
			t.Fatalf("repeat with -run '%s$' -seed=%d", t.Name(), seed)
		}
	}
}

// runs returns how many of this many runs of a model to do. The race detector makes each take
// several times as long, so most are left to scripts/check, which runs without it.
func runs(of int) int {
	switch {
	case testing.Short(), race.Enabled:
		return max(1, of/20)
	}
	return of
}
