package proctest

import (
	"fmt"
	"math/rand/v2"
)

// Host returns a loopback address that no other test has. Nodes keep trying the addresses of nodes
// that are gone: on 127.0.0.1 such a port could belong to a node of another test by then, and the
// two clusters would merge.
func Host() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
}
