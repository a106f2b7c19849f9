package peer

import "context"

// Transport carries a message to an address and returns the reply, in memory of its own. It sends a
// message once, and keeps nothing of it. An error wraps rpc.ErrUnreachable if the message certainly
// did not reach the other process because nothing listens there or the connection broke,
// rpc.ErrLate if there was no connection in time, and rpc.ErrRefused if it was answered that the
// message is not taken.
type Transport interface {
	Send(ctx context.Context, address string, message []byte) (reply []byte, err error)
}
