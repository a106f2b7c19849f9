package imports

// Exported for direct tests.
var (
	Milliseconds = milliseconds
	Missing      = missing
	InUse        = inUse
	Merge        = merge
)

// Glob returns the pattern in the language of SCAN.
func (p *Pattern) Glob() string { return p.glob() }

// Expand expands other with the values that p finds in a key.
func (p *Pattern) Expand(key string, other *Pattern) (string, bool) {
	values, ok := p.values(key)
	return other.expand(values), ok
}
