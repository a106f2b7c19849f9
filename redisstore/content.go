package redisstore

import (
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// appendContent appends the number of fields and values of a Hash with these buckets, and then the
// fields and values.
func appendContent(args []any, buckets []syncer.Bucket) []any {
	lists, first := layout.Lists{}, len(args)
	args = append(args, nil)
	ignore := func(string) {}
	for i := range buckets {
		if b := &buckets[i]; layout.IsListed(b.Stretch, b.N) {
			lists.Push(b.Start, b.N, ignore)
		} else {
			args = append(args, layout.Field(b.Stretch), number(b.N))
		}
	}
	lists.Finish(ignore)
	for name, value := range lists {
		args = append(args, name, value)
	}
	args[first] = number(len(args) - first - 1)
	return args
}
