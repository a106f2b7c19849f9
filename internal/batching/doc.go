// Package batching has calls that are made at the same time go out together, without a clock.
//
// A [Queue] holds the calls that wait. A lane, which is a goroutine in [Queue.Run], takes all that
// wait, sends them as one batch, and comes back for more when it has been answered. So the busier
// the other side is, the more calls share the cost of a message, and a call that nobody else is in
// the way of goes out at once. How many batches are under way at a time is up to who starts lanes.
//
// # Who has a call
//
// A call is in the queue until somebody takes it ([Call.Take]), and only one can. A lane that takes
// it sends it and finishes it. Who waits for it and takes it back knows that it has not been sent
// and never will be. Who has waited long enough while a lane has it knows nothing of its outcome.
// [Call.Wait] tells these three apart, which is what the three kinds of errors are made of.
//
// # An end
//
// [Queue.Drain] finishes all that wait with an error: nothing of it has been sent. A queue whose
// [Options] name a reason to refuse calls takes none, and none is left behind by a call that
// arrives at the moment when the reason does. [Queue.Close] takes no further calls, and has lanes
// end once they have sent what waits.
package batching
