package peer

import "context"

// Transport sends a message to an address, exactly once, and returns the reply in newly allocated
// memory. It does not keep the message. An error wraps rpc.ErrUnreachable if the message certainly
// did not reach the other process, because nothing listens there or the connection broke;
// rpc.ErrLate if there was no connection in time; and rpc.ErrRefused if the receiver answered that
// it does not accept the message.
type Transport interface {
	Send(ctx context.Context, address string, message []byte) (reply []byte, err error)
}
