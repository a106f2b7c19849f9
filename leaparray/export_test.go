package leaparray

// MostForeign is how many foreign cells a counter may have.
const MostForeign = mostForeign

// Around is enclosingBucket.
var Around = enclosingBucket
