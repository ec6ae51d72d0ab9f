module example.com/seqserve-example

go 1.24
