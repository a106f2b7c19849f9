package ask

import (
	"context"

	"twotier.dev/twotier"
)

// Service executes operations. A method must not keep an operation, its keys or its context after
// it returns. Package request classifies the errors.
type Service interface {
	// Do executes one operation.
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	// DoAll executes operations and sets Err in each result. Operations on the same key are
	// executed in order.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// Keys answers queries about keys.
type Keys interface {
	// Series returns the buckets of a key, oldest first, over a window in milliseconds that ends
	// now, and their width.
	Series(ctx context.Context, ns, key []byte,
		window int64) (bucketMS int64, points []twotier.Point, err error)
	// Top returns up to limit of the keys with the largest counts, largest first, of those that
	// begin with a prefix. by is what to count, see request.ValidTopOrder: in a window in
	// milliseconds that ends now, or, if by is "concurrent", the leases that are open now, of all
	// keys.
	Top(ctx context.Context, by, prefix string, limit int,
		window int64) ([]twotier.KeyCount, error)
	// OpenLeases returns how many leases of a key are open.
	OpenLeases(ctx context.Context, ns, key []byte) (twotier.OpenLeases, error)
}

// Resetter resets keys.
type Resetter interface {
	// Reset forgets a key.
	Reset(ctx context.Context, ns, key []byte) error
}

// Rules resolves the names of rules.
type Rules interface {
	// Rules returns the rules in force, or nil while they are unknown. All names in one request are
	// resolved in one set.
	Rules() *twotier.RuleSet
}
