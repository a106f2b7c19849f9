// Package batching sends concurrent calls together, without a timer.
//
// A [Queue] holds waiting calls. A worker is a goroutine in [Queue.Run]: it takes all waiting
// calls, sends them as one batch, and comes back for more when the batch has been answered. So the
// busier the other side is, the more calls share the cost of a message. A call goes out at once if
// a worker is free. The number of workers is the maximum number of batches in flight.
//
// # Who owns a call
//
// A call stays in the queue until it is taken ([Call.Take]), which succeeds only once. If a worker
// takes it, the worker sends and finishes it. If the waiting caller takes it back, it has not been
// sent and never will be. If the caller gives up after a worker has taken the call, its outcome is
// unknown. [Call.Wait] returns which of the three happened, so that callers can tell retryable
// errors from unknown outcomes.
//
// A caller of several concurrent calls has them share a signal ([Call.ResetTo]). After each signal
// it checks which of them have finished ([Call.Finished]), and it gives up the others one by one
// ([Call.GiveUp]).
//
// # Shutdown
//
// [Queue.FailWaiting] finishes all waiting calls with an error: none of them has been sent. While
// Options.Refused returns an error, the queue takes no calls, and a call that arrives just as the
// refusal begins is drained too. [Queue.Close] refuses further calls; workers end once they have
// sent the waiting ones.
//
// # Not included
//
// The package does not define the content of a batch, the handling of unanswered messages, or the
// criterion for the other side being down. These differ: nodes number their messages and start
// another worker next to a slow one (internal/peer), the Go client repeats a request within a
// session and returns reads to be asked elsewhere (httpapi/client), and Redis recognizes a repeated
// script by its sequence (redisstore).
package batching
