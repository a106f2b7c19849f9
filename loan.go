package twotier

import "time"

// LoanTime is how long a loan is valid for its borrower, from the request on.
const LoanTime = time.Second

// LoanRequest reports a borrower's use of a key to its owner, and asks for more. Everything that a
// counter borrows of a key without interruption is one loan. Its figures only grow, so an
// unanswered request does no harm. See package syncer.
type LoanRequest struct {
	NS, Key []byte
	// Limits bound the loan: the owner lends only as many events as they allow. Without limits, it
	// may lend any number.
	Limits []Limit
	// Loan is the name of the loan, which is used once. Number grows with each of its requests.
	Loan   string
	Number uint64
	// Ceiling is how many events the borrower may count in total, by its own account, which may be
	// less than it was lent. InStore is how many of them the store has acknowledged.
	Ceiling, InStore int64
	// Want is how many more events the borrower asks for.
	Want int64
}

// LoanResponse is the owner's response to a [LoanRequest].
type LoanResponse struct {
	// Number is the number of the request; 0 if the owner did not process it.
	Number uint64
	// Ceiling is how many events the borrower may count in total, within LoanTime of its request.
	Ceiling int64
	// Now is the owner's time in unix milliseconds.
	Now int64
	// Refused is for how many milliseconds the owner will refuse a single event more, and RefusedBy
	// the index of the limit that refuses the longest.
	Refused   int64
	RefusedBy int
}

// Loan is the owner's record of a loan, see [LoanRequest].
type Loan struct {
	NS, Key []byte
	Name    string
	Number  uint64
	Ceiling int64
	// Seen is how many of the events the owner has read from the store.
	Seen int64
	// Until is the latest possible time of the last of them, in unix milliseconds.
	Until int64
}
