pac release people.csv --model mean --columns income --group-by region \
    --budget "membership<=0.6" -o out
