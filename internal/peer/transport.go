package peer

import (
	"context"
	"errors"
)

// ErrNotSent is wrapped by an error of a Transport if the message certainly did not reach the other process.
var ErrNotSent = errors.New("not sent")

// Transport carries a message to an address and its reply back. It sends a message once, and keeps nothing of it.
type Transport interface {
	Send(ctx context.Context, address string, message []byte) (reply []byte, err error)
}
