package listener

import (
	"fmt"
	"time"
)

// Bounds points to the options of a server that have common defaults and bounds. Times that it does
// not have are nil.
type Bounds struct {
	RequestTimeout, ReadTimeout, WriteTimeout, IdleTimeout *time.Duration

	MaxConns, MaxConnsPerAddress *int
}

// Fill sets options that are 0 to their defaults: 2 s for the execution of a request, 10 s for
// reading and writing, idle between requests, conns connections, and half of the connections for
// an address. It returns an error of package of about the first option that is out of bounds.
func (b Bounds) Fill(of string, idle time.Duration, conns int) error {
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"RequestTimeout", b.RequestTimeout, 2 * time.Second},
		{"ReadTimeout", b.ReadTimeout, 10 * time.Second},
		{"WriteTimeout", b.WriteTimeout, 10 * time.Second},
		{"IdleTimeout", b.IdleTimeout, idle},
	} {
		if d.value == nil {
			continue
		}
		if *d.value < 0 {
			return fmt.Errorf("%s: Options.%s is %v, want more than 0", of, d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	all, each := b.MaxConns, b.MaxConnsPerAddress
	if *all == 0 {
		*all = conns
	}
	if *each == 0 {
		*each = max(1, *all/2)
	}
	switch {
	case *all < 1:
		return fmt.Errorf("%s: Options.MaxConns is %d, want 1 or more", of, *all)
	case *each < 1 || *each > *all:
		return fmt.Errorf("%s: Options.MaxConnsPerAddress is %d, want 1 to %d", of, *each, *all)
	}
	return nil
}
