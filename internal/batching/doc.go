// Package batching sends calls that are made at the same time together, without a timer.
//
// A [Queue] holds the calls that wait. A lane is a goroutine in [Queue.Run]: it takes everything
// that waits, sends it as one batch, and comes back for more when the batch has been answered. So
// the busier the other side is, the more calls share the cost of a message. A call goes out at once
// if a lane is free. The number of lanes is the number of batches that can be in flight at a time.
//
// # Who has a call
//
// A call is in the queue until somebody takes it ([Call.Take]), and only one can. If a lane takes
// it, the lane sends and finishes it. If the waiting caller takes it back, it has not been sent and
// never will be. If the caller gives up after a lane has taken the call, its outcome is unknown.
// [Call.Wait] returns which of the three happened, so that callers can tell retryable errors from
// unknown outcomes.
//
// A caller of several calls at the same time has them share a signal ([Call.ResetTo]). After each
// signal it looks which of them have finished ([Call.Finished]), and it gives up the others one by
// one ([Call.GiveUp]).
//
// # Shutdown
//
// [Queue.Drain] finishes all calls that wait with an error: none of them has been sent. While
// Options.Refused returns an error, the queue takes no calls, and a call that arrives just as the
// refusal begins is drained too. [Queue.Close] takes no further calls, and lanes end once they have
// sent what waits.
//
// # What is not here
//
// What a lane sends, what becomes of a message that gets no answer, and when the other side counts
// as down. That differs: nodes number their messages and start another lane beside a slow one
// (internal/peer), the Go client repeats a request within a session and gives reads back to be
// asked elsewhere (httpapi/client), and Redis knows a script that is sent again by its sequence
// (redisstore).
package batching
