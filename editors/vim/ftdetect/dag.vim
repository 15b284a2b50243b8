autocmd BufRead,BufNewFile *.dag setfiletype dag
