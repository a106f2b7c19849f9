package receive

import "twotier.dev/twotier/httpapi/internal/wire"

// singletons lists the headers that a request of the API has at most once, apart from those that
// fasthttp checks: Host, Content-Length and Transfer-Encoding. A proxy on the way may have believed
// the other value.
var singletons = [...]string{
	"Authorization", "Content-Encoding", "Content-Type", "If-Match", "Origin", "Twotier-Pass",
	"Twotier-Process", "Twotier-Sequence", "Twotier-Session", "Twotier-Timeout",
}

// singles has the singletons that lines of a header have named.
type singles struct {
	seen  uint16 // a bit for each of singletons
	twice string
}

// add adds a line. It reports whether the line names a singleton for the second time.
func (s *singles) add(line []byte) bool {
	if len(line) == 0 {
		return false
	}
	first := line[0] | 0x20
	for i, name := range singletons {
		if name[0]|0x20 != first || len(line) <= len(name) || line[len(name)] != ':' ||
			!hasName(line, name) {
			continue
		}
		bit := uint16(1) << i
		if s.seen&bit != 0 {
			s.twice = name
			return true
		}
		s.seen |= bit
	}
	return false
}

// TwiceProblem is the problem of a request that has a header twice.
func TwiceProblem(name string) *wire.Problem {
	return &wire.Problem{Kind: wire.Malformed, Detail: name + ": given twice"}
}
