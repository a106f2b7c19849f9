package proctest

import (
	"fmt"
	"math/rand/v2"
)

// Host returns an address of loopback that no other test has. Nodes go on trying the addresses of
// those that are gone: on 127.0.0.1 the port of one could belong to a node of another test by then,
// and their clusters become one.
func Host() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
}
